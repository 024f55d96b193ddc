-- Give leases back, as far as they are ours.
update weir.leases l set owner = null
  from unnest($3::smallint[], $4::bigint[]) as h (shard, epoch)
 where l.scope = $1 and l.owner = $2 and l.shard = h.shard and l.epoch = h.epoch
