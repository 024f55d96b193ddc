-- Drop snapshots.
delete from weir.snap_name s using unnest($1::text[], $2::uuid[]) as n (key, last)
 where s.key = n.key and s.last = n.last
