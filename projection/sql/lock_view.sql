-- Wait for everybody who writes to the table of a view, and have them look again.
with gate as materialized (
    select pg_advisory_xact_lock(hashtextextended('weir.editions' || $1, 0)))
update weir.editions set changes = changes + 1 from gate where view = $1
