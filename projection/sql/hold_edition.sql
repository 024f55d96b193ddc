-- Hold the edition of a view to the end of the transaction. A rebuild that swaps has
-- to update the row and therefore waits for this transaction.
select changes from weir.editions where view = $1 for share
