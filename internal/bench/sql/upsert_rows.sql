-- Write the rows of one page, over whatever is there.
insert into twin.accounts (key, state, version, event_id, position)
select key, state::jsonb, version, event_id, position
  from unnest($1::text[], $2::text[], $3::bigint[], $4::uuid[], $5::bigint[])
    as n (key, state, version, event_id, position)
on conflict (key) do update
   set state = excluded.state, version = excluded.version, event_id = excluded.event_id,
       position = excluded.position, updated_at = now()
