-- A page of one stream, oldest first: events with a version above $2, up to $3.
select e.position, s.name, e.version, e.event_id, e.order_id, e.type,
       e.data, e.bytes, e.content_type, e.metadata, e.recorded_at, e.stream_id, e.shard
  from weir.streams s
 cross join lateral (
       select * from weir.events
        where stream_id = s.id and version > $2 and version <= $3
        order by version
        limit $4) e
 where s.name = $1
 order by e.version
