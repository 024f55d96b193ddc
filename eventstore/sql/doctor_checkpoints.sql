-- How far each consumer is, at its first and at its last shard.
select consumer, count(*), min(position), max(position), max(updated_at)
  from weir.checkpoints
 group by consumer
 order by consumer
