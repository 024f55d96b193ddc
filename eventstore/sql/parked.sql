-- The streams a consumer is stopped at.
select s.name, p.version, p.reason, p.error, p.attempts, p.parked_at
  from weir.parked p join weir.streams s on s.id = p.stream_id
 where p.consumer = $1
 order by s.name
