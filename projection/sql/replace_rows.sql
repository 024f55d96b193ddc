-- Write rows over whatever is there.
insert into weir.view_name as v (key, state, version, event_id, position, fingerprint)
select key, state::jsonb, version, event_id, position, fingerprint
  from unnest($1::text[], $2::text[], $3::bigint[], $4::uuid[], $5::bigint[], $6::bytea[])
    as n (key, state, version, event_id, position, fingerprint)
on conflict (key) do update
   set state = excluded.state, version = excluded.version, event_id = excluded.event_id,
       position = excluded.position, fingerprint = excluded.fingerprint, updated_at = now()
