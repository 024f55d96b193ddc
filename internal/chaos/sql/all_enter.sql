-- One row for one event, with whoever holds the lease of its shard at this moment:
-- the fence keeps the lease where it is until the transaction ends.
insert into chaos_entries (event_id, stream, version, position, shard, writer, owner, epoch)
select $1, $2, $3, $4, $5, $6, l.owner, l.epoch
  from (select 1) one
  left join weir.leases l on l.scope = 'shards' and l.shard = $5
