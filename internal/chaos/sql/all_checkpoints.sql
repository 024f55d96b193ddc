select consumer, shard, position from weir.checkpoints
