-- Leave a rebuild to whoever wants to go on with it.
update weir.rebuilds set alive_at = '-infinity' where view = $1 and worker = $2
