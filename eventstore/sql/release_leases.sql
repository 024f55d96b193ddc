-- Take leases from their owners, as far as they have not changed hands since they were
-- looked at. The epoch makes every write of the old owner fail from now on; one that is
-- under way is waited for.
with held as materialized (
    select l.scope, l.shard
      from unnest($1::text[], $2::smallint[], $3::bigint[]) as h (scope, shard, epoch)
      join weir.leases l on l.scope = h.scope and l.shard = h.shard
     where l.owner is not null and l.epoch = h.epoch
     order by l.scope, l.shard
       for update of l)
update weir.leases l
   set owner = null, epoch = l.epoch + 1
  from held
 where l.scope = held.scope and l.shard = held.shard
returning l.scope, l.shard, l.epoch
