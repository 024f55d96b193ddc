-- What the projection applied.
select position, event_id, stream, version from weir.chaos_applied order by n
