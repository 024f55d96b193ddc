-- Count rewinds at a checkpoint that was written before.
update weir.checkpoints
   set inversions = inversions + $3, rewinds = rewinds + $4, from_snapshot = from_snapshot + $5, replayed = replayed + $6
 where consumer = $1 and shard = $2
