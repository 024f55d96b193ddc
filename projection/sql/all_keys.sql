-- All rows, tombstones too.
select key, coalesce(version, 0) from weir.view_name
