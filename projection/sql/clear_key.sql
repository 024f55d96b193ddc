-- Forget the snapshots of a key.
delete from weir.snap_name where key = $1
