-- Who was noted as the owner under each epoch of each lease.
select distinct scope, shard, epoch, owner::text
  from chaos_leases
 where owner is not null
