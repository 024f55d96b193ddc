-- Forget all snapshots of a view.
delete from weir.snap_name
