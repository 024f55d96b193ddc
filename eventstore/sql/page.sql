-- A page of the log: events above $1 up to $2, of these shards, or of all.
select e.position, s.name, e.version, e.event_id, e.order_id, e.type,
       e.data, e.bytes, e.content_type, e.metadata, e.recorded_at, e.stream_id, e.shard
  from weir.events e
 cross join lateral (select name from weir.streams where id = e.stream_id limit 1) s
 where e.position > $1 and e.position <= $2
   and ($3::smallint[] is null or e.shard = any ($3))
 order by e.position
 limit $4
