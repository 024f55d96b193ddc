-- Events of several streams, each between two versions, both included.
select e.position, s.name, e.version, e.event_id, e.order_id, e.type,
       e.data, e.bytes, e.content_type, e.metadata, e.recorded_at, e.stream_id, e.shard
  from unnest((select $1::text[]), $2::bigint[], $3::bigint[]) as r (name, first, last)
 cross join lateral (select id, name from weir.streams where name = r.name limit 1) s
 cross join lateral (
       select * from weir.events
        where stream_id = s.id and version between r.first and r.last
        order by version
        offset 0) e
