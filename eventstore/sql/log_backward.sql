-- A page of the log, newest first: events above position $1 up to $2, of these
-- types and categories, between two order ids.
select e.position, s.name, e.version, e.event_id, e.order_id, e.type,
       e.data, e.bytes, e.content_type, e.metadata, e.recorded_at, e.stream_id, e.shard
  from weir.events e
 cross join lateral (select name, category from weir.streams where id = e.stream_id limit 1) s
 where e.position > $1 and e.position <= $2
   and ($4::text[] is null or e.type = any ($4))
   and ($5::text[] is null or s.category = any ($5))
   and ($6::uuid is null or coalesce(e.order_id, e.event_id) >= $6)
   and ($7::uuid is null or coalesce(e.order_id, e.event_id) <= $7)
 order by e.position desc
 limit $3
