-- A page of the log, with all that an event of ours has.
select e.position, s.name, e.version, e.event_id, e.order_id, e.type,
       e.data, e.bytes, e.content_type, e.metadata, e.recorded_at, e.stream_id, e.shard
  from weir.events e
  join weir.streams s on s.id = e.stream_id
 where e.position > $1
 order by e.position
 limit 1000
