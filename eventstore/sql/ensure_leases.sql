-- One row per shard of a scope.
insert into weir.leases (scope, shard)
select $1, shard from unnest($2::smallint[]) as n (shard)
 where not exists (select from weir.leases l where l.scope = $1 and l.shard = n.shard)
on conflict do nothing
