-- The instances of a name that live, and who holds the leases of some scopes and how long
-- they have been silent: all by the clock of the database. An owner that is unknown has
-- been silent for ever. Where there are no leases yet, there is one row without any.
select coalesce(live.ids, '{}'), coalesce(l.scope, ''), coalesce(l.shard, 0), l.owner, coalesce(l.epoch, 0), coalesce(l.taken_at, '-infinity'),
       coalesce(i.heartbeat_at, '-infinity'), coalesce(i.heartbeat_at < clock_timestamp() - $3::interval, true)
  from (select array_agg(id order by id) as ids
          from weir.instances
         where name = $1 and heartbeat_at >= clock_timestamp() - $3::interval) live
  left join weir.leases l on l.scope = any ($2)
  left join weir.instances i on i.id = l.owner
 order by l.scope, l.shard
