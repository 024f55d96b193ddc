-- How many snapshots there are, and how many bytes of state they hold.
select count(*) || ' snapshots, ' || coalesce(sum(octet_length(state::text)), 0) || ' bytes' from weir.snap_accounts
