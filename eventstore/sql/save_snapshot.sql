-- Keep a snapshot, unless there is a newer one of the same schema.
insert into weir.snapshots as p (stream_id, kind, schema, version, last_order, state)
select s.id, $2, $3, $4, $5, $6::json from weir.streams s where s.name = $1
on conflict (stream_id, kind) do update
   set schema = excluded.schema, version = excluded.version, last_order = excluded.last_order,
       state = excluded.state, taken_at = now()
 where p.schema <> excluded.schema or p.version < excluded.version
