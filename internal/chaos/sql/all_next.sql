-- When another process first wrote for one of these shards after a moment.
select min(at)
  from chaos_entries
 where at > $1 and shard = any ($2) and writer <> $3
