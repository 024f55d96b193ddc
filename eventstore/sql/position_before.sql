-- The highest position such that everything recorded at or after a time is above it.
-- Transactions overlap, so the times do not rise strictly and all are looked at.
select coalesce(min(position) - 1, (select coalesce(max(position), 0) from weir.events))
  from weir.events
 where recorded_at >= $1
