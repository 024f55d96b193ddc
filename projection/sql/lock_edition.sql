-- Wait for everybody who writes to the table of a view, and let nobody begin.
with gate as materialized (
    select pg_advisory_xact_lock(hashtextextended('weir.editions' || $1, 0)))
update weir.editions
   set edition = edition + 1, changes = changes + 1, schema = $2, rebuilt_at = now()
  from gate
 where view = $1
returning edition
