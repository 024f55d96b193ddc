-- What is stored, in the order of the log: what a commit really left behind.
select e.position, e.event_id, s.name, e.version
  from weir.events e
  join weir.streams s on s.id = e.stream_id
 order by e.position
