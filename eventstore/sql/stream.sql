-- A page of one stream, oldest first: events with a version above $2 up to $3,
-- of these types, and between two order ids and up to a position.
select e.position, s.name, e.version, e.event_id, e.order_id, e.type,
       e.data, e.bytes, e.content_type, e.metadata, e.recorded_at, e.stream_id, e.shard
  from weir.streams s
 cross join lateral (
       select * from weir.events
        where stream_id = s.id and version > $2 and version <= $3
          and ($5::text[] is null or type = any ($5))
          and ($6::uuid is null or coalesce(order_id, event_id) >= $6)
          and ($7::uuid is null or coalesce(order_id, event_id) <= $7)
          and position between $8 and $9
        order by version
        limit $4) e
 where s.name = $1
 order by e.version
