-- Note how far a rebuild is.
update weir.rebuilds
   set phase = $3, stream_id = $4, upto = $5::text::json, done = $6, total = greatest(total, $6), alive_at = clock_timestamp()
 where view = $1 and worker = $2
