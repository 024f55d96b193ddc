-- The streams of which a view has passed over events that are not applied yet: those that
-- are rewound beside the others, and, if $2, those that are parked; and what their rows
-- have seen.
select s.name, coalesce(v.version, 0)
  from (select stream_id from weir.rewinding where consumer = $1
         union select stream_id from weir.parked where consumer = $1 and $2) h
  join weir.streams s on s.id = h.stream_id
  left join weir.view_name v on v.key = s.name
