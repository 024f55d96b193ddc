-- Take those of the locked leases that nobody else holds, or whose owner has been
-- silent longer than $4 by the clock of the database. Each taking has a new epoch, so
-- that a write under an old one which is still on its way changes nothing.
update weir.leases l
   set owner = $3, epoch = l.epoch + 1, taken_at = clock_timestamp()
 where l.scope = $1 and l.shard = any ($2)
   and not exists (
       select from weir.instances i
        where i.id = l.owner and i.id <> $3 and i.heartbeat_at >= clock_timestamp() - $4::interval)
returning l.shard, l.epoch
