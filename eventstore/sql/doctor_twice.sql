-- Ids that more than one event above position $1 up to $2 has.
select event_id from weir.events
 where position > $1 and position <= $2
 group by event_id
having count(*) > 1
 order by event_id
 limit $3
