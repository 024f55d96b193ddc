-- Let a consumer go on with a stream.
delete from weir.parked p using weir.streams s
 where s.id = p.stream_id and p.consumer = $1 and s.name = $2
