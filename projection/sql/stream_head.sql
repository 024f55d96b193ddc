-- The version of a stream, 0 where there is none.
select coalesce((select version from weir.streams where name = $1), 0)
