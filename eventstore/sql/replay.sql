-- Events of several streams, each between two versions, both included, and up to a
-- position; stream by stream as they are named, each in the order of order ids or,
-- if $5, of versions.
select e.position, s.name, e.version, e.event_id, e.order_id, e.type,
       e.data, e.bytes, e.content_type, e.metadata, e.recorded_at, e.stream_id, e.shard
  from unnest((select $1::text[]), $2::bigint[], $3::bigint[], $4::bigint[]) with ordinality as r (name, first, last, upto, at)
 cross join lateral (select id, name from weir.streams where name = r.name limit 1) s
 cross join lateral (
       select * from weir.events
        where stream_id = s.id and version between r.first and r.last and position <= r.upto
       offset 0) e
 order by r.at, case when not $5 then coalesce(e.order_id, e.event_id) end, e.version
