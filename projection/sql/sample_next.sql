-- Some rows, no two runs the same.
select key from weir.view_name order by random() limit $1
