-- The streams that a consumer is stopped at or rewinds.
select s.name
  from (select stream_id from weir.parked where consumer = $1
         union select stream_id from weir.rewinding where consumer = $1) b
  join weir.streams s on s.id = b.stream_id
