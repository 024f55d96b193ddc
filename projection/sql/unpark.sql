-- Nothing of a view is parked any more.
delete from weir.parked where consumer = $1
