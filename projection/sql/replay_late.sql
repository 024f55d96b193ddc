-- What the rewinds of rows replay that have seen later events than these: the events
-- above the newest snapshot of this schema that sorts below the key's id, key by key, in
-- the order of order ids; of each key no more than 200. (As a parameter, the limit
-- would be planned anew each time.)
select e.position, s.name, e.version, e.event_id, e.order_id, e.type,
       e.data, e.bytes, e.content_type, e.metadata, e.recorded_at, e.stream_id, e.shard
  from unnest((select $1::text[]), $2::uuid[]) as k (key, late)
 cross join lateral (select from weir.view_name where key = k.key and event_id > k.late limit 1) r
 cross join lateral (select id, name from weir.streams where name = k.key limit 1) s
 cross join lateral (
       select * from weir.events
        where stream_id = s.id
          and version > coalesce((select upto from weir.snap_name
                                   where key = k.key and schema = $3 and last < k.late
                                   order by last desc limit 1), 0)
        order by version
        limit 200) e
 order by s.name, coalesce(e.order_id, e.event_id), e.version
