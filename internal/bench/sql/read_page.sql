-- A page of the log, of what the twin needs of it.
select position, stream_id, version, event_id, data
  from weir.events
 where position > $1
 order by position
 limit 1000
