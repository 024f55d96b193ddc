-- Who holds the leases of these scopes, and how long they have been silent, by the
-- clock of the database. An owner that is unknown has been silent for ever.
select l.scope, l.shard, l.owner, l.epoch, coalesce(l.taken_at, '-infinity'),
       coalesce(i.heartbeat_at, '-infinity'), coalesce(i.heartbeat_at < clock_timestamp() - $2::interval, true)
  from weir.leases l
  left join weir.instances i on i.id = l.owner
 where l.scope = any ($1)
 order by l.scope, l.shard
