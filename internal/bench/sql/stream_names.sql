-- The names of all streams.
select id, name from weir.streams
