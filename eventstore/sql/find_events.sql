-- The stored events among these ids.
select e.position, s.name, e.version, e.event_id, e.order_id, e.type,
       e.data, e.bytes, e.content_type, e.metadata, e.recorded_at, e.stream_id, e.shard
  from unnest((select $1::uuid[])) as w (event_id)
 cross join lateral (select * from weir.events where event_id = w.event_id limit 1) e
 cross join lateral (select name from weir.streams where id = e.stream_id limit 1) s
