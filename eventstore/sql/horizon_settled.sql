-- The highest position that is stored at or below the bound, and at all.
select coalesce((select max(position) from weir.events where position <= $1), 0),
       coalesce((select max(position) from weir.events), 0)
