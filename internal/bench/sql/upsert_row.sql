-- Write a row.
insert into twin.accounts (key, state, version, event_id, position)
values ($1, $2::text::jsonb, $3, $4, $5)
on conflict (key) do update
   set state = excluded.state, version = excluded.version, event_id = excluded.event_id,
       position = excluded.position, updated_at = now()
