-- Who has written for events that a trap was in the way of, before this moment.
select x.writer
  from chaos_entries x
  join weir.events e on e.event_id = x.event_id
 where e.type = 'chaos.said' and e.data ->> 'by' = $1
