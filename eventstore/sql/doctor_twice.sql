-- Ids that more than one event above position $1 up to $2 has. The events are read
-- by position first: grouped by way of the index on ids, all of them would be read.
with span as materialized (
       select event_id from weir.events where position > $1 and position <= $2)
select event_id from span group by event_id having count(*) > 1 limit $3
