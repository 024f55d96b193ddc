-- The instances of a name that live, by the clock of the database.
select id from weir.instances
 where name = $1 and heartbeat_at >= clock_timestamp() - $2::interval
 order by id
