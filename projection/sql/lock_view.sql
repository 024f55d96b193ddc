-- Wait for everybody who writes to the table of a view, and have them look again.
update weir.editions set changes = changes + 1 where view = $1
