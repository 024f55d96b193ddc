-- Lock leases before looking at their owners: who comes second waits here, and
-- then sees what the first did.
select from weir.leases
 where scope = $1 and shard = any ($2)
 order by shard
   for update
