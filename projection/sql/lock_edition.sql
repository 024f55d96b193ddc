-- Wait for everybody who writes to the table of a view, and let nobody begin.
update weir.editions set edition = edition + 1, changes = changes + 1, schema = $2, rebuilt_at = now()
 where view = $1
returning edition
