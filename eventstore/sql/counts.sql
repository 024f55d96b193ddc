-- How many events and streams there are.
select coalesce(sum(version), 0)::bigint, count(*) from weir.streams where version > 0
