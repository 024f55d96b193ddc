-- A whole stream, with all that an event of ours has.
select e.position, s.name, e.version, e.event_id, e.order_id, e.type,
       e.data, e.bytes, e.content_type, e.metadata, e.recorded_at, e.stream_id, e.shard
  from weir.streams s
  join weir.events e on e.stream_id = s.id
 where s.name = $1
 order by e.version
