-- A stream of a consumer is neither parked nor rewound any more.
with stream as (select id from weir.streams where name = $2),
     unparked as (delete from weir.parked where consumer = $1 and stream_id in (select id from stream))
delete from weir.rewinding where consumer = $1 and stream_id in (select id from stream)
