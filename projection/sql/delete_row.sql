-- Take rows away.
delete from weir.view_name where key = any ($1)
