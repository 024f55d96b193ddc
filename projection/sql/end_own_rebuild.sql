-- Our rebuild is done.
delete from weir.rebuilds where view = $1 and worker = $2
