-- Hold the leases of these shards to the end of the transaction. A row that does
-- not come back belongs to somebody else now. A takeover has to update the row
-- and therefore waits for this transaction.
select l.shard
  from unnest((select $3::smallint[]), $4::bigint[]) as h (shard, epoch)
 cross join lateral (
       select shard from weir.leases
        where scope = $1 and shard = h.shard and owner = $2 and epoch = h.epoch
        limit 1
          for share) l
