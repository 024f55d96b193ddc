-- Remove the rows that the next edition does not have.
with gone as (
    delete from weir.view_name v
     where not exists (select from weir.next_name n where n.key = v.key)
    returning 1)
select count(*) from gone
