select e.position, e.event_id, coalesce(e.order_id, e.event_id), s.name, e.version, e.shard, e.type, e.data::text
  from weir.events e
  join weir.streams s on s.id = e.stream_id
 order by e.position
