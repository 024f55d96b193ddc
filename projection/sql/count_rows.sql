-- The rows that are there.
select count(*) from weir.view_name where state is not null
