-- Stop a consumer at an event of one stream. The first failure stays.
insert into weir.parked (consumer, stream_id, version, shard, reason, error, attempts)
select $1, s.id, $3, s.shard, $4, $5, $6 from weir.streams s where s.name = $2
on conflict (consumer, stream_id) do nothing
