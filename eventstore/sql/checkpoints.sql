-- Where a consumer is, shard by shard.
select shard, position from weir.checkpoints where consumer = $1
