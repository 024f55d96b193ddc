-- The streams at which a consumer stopped, the longest first, and how many in all.
select p.consumer, coalesce(s.name, '#' || p.stream_id), p.version, p.reason, p.attempts, p.parked_at, count(*) over ()
  from weir.parked p
  left join weir.streams s on s.id = p.stream_id
 order by p.parked_at, p.consumer, s.name
 limit $1
