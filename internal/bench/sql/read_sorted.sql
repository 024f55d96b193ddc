-- A whole stream in the order of ids, of what the twin needs of it.
select e.position, e.version, e.event_id, e.data
  from weir.streams s
  join weir.events e on e.stream_id = s.id
 where s.name = $1
 order by coalesce(e.order_id, e.event_id)
