-- Say that a rebuild lives.
update weir.rebuilds set alive_at = clock_timestamp() where view = $1 and worker = $2
