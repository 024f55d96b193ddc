-- The streams that a consumer rewinds beside the others.
select s.name, r.position
  from weir.rewinding r join weir.streams s on s.id = r.stream_id
 where r.consumer = $1
 order by r.started_at, s.name
