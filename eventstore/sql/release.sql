-- A stream that a consumer stopped at is to be caught up with, beside the others, from
-- the event that failed.
with gone as (
    delete from weir.parked p
     using weir.streams s
     where p.consumer = $1 and s.id = p.stream_id and s.name = $2
    returning p.stream_id, p.shard, p.version)
insert into weir.rewinding (consumer, stream_id, shard, position)
select $1, g.stream_id, g.shard, e.position
  from gone g
  join weir.events e on e.stream_id = g.stream_id and e.version = g.version
on conflict (consumer, stream_id) do nothing
