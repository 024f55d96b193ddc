-- Hold the edition of a view to the end of the transaction. A rebuild that swaps has
-- to update the row and therefore waits for this transaction. At the gate, which is a
-- queue, whoever waits for it alone is not overtaken.
with gate as materialized (
    select pg_advisory_xact_lock_shared(hashtextextended('weir.editions' || $1, 0)))
select e.changes from gate cross join weir.editions e where e.view = $1 for share of e
