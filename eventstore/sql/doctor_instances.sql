-- Who runs, the last heartbeat in seconds by the clock of the database, and how
-- many leases are theirs.
select i.id, i.name, i.started_at, greatest(extract(epoch from clock_timestamp() - i.heartbeat_at), 0)::float8,
       (select count(*) from weir.leases l where l.owner = i.id)
  from weir.instances i
 order by i.started_at
 limit $1
