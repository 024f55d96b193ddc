-- Write snapshots.
insert into weir.snap_name as s (key, last, upto, reached, position, schema, fingerprint, state)
select key, last, upto, reached, position, schema, fingerprint, state::json
  from unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::integer[], $7::bytea[], $8::text[])
    as n (key, last, upto, reached, position, schema, fingerprint, state)
on conflict (key, last) do update
   set upto = excluded.upto, reached = excluded.reached, position = excluded.position, schema = excluded.schema,
       fingerprint = excluded.fingerprint, state = excluded.state, taken_at = now()
