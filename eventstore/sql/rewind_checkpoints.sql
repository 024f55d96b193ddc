-- Move back those checkpoints of a consumer that are above a position.
update weir.checkpoints
   set position = $2, updated_at = now()
 where consumer = $1 and position > $2
