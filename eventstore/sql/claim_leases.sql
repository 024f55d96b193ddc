-- Take the leases of a scope that nobody holds, or whose owner has been silent
-- longer than $4 by the clock of the database. A new owner gets a new epoch, so
-- that a write of the old one which is still on its way changes nothing.
with free as (
    select l.scope, l.shard
      from weir.leases l
      left join weir.instances i on i.id = l.owner
     where l.scope = $1 and l.shard = any ($2)
       and (i.id is null or i.heartbeat_at < clock_timestamp() - $4::interval)
     order by l.shard
       for update of l)
update weir.leases l
   set owner = $3, epoch = l.epoch + 1, taken_at = clock_timestamp()
  from free
 where l.scope = free.scope and l.shard = free.shard
returning l.shard, l.epoch
