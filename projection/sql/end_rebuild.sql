-- There is no rebuild of this view any more.
delete from weir.rebuilds where view = $1
