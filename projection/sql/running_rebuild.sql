-- Since when a rebuild runs, and when it was last heard of.
select started_at, alive_at from weir.rebuilds where view = $1
