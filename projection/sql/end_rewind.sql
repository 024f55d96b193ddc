-- A stream is with the others again.
delete from weir.rewinding r using weir.streams s
 where r.consumer = $1 and r.stream_id = s.id and s.name = $2
