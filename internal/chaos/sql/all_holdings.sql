-- The shards of a process, by the name it writes under.
select shard
  from weir.leases
 where scope = 'shards'
   and owner = (select owner from chaos_entries where writer = $1 order by at desc limit 1)
