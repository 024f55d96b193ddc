-- Take a row away.
delete from weir.view_name where key = $1
