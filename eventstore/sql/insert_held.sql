-- Write events in the order given and move the heads of their streams, if
-- hold_heads.sql found them where they were believed to be.
with advanced as (
       insert into weir.streams (id, name, category, shard, version, last_order)
       overriding system value
       select id, '', '', 0, version, last_order
         from unnest($11::bigint[], $12::bigint[], $13::uuid[]) as n (id, version, last_order)
        where current_setting('weir_append.held') = 'true'
       on conflict (id) do update set version = excluded.version, last_order = excluded.last_order)
insert into weir.events (stream_id, version, event_id, order_id, shard, type, data, bytes, content_type, metadata)
select stream_id, version, event_id, order_id, shard, type, data::json, bytes, content_type, metadata::json
  from unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::uuid[], $5::smallint[], $6::text[],
              $7::text[], $8::bytea[], $9::text[], $10::text[])
    as n (stream_id, version, event_id, order_id, shard, type, data, bytes, content_type, metadata)
 where current_setting('weir_append.held') = 'true'
returning position
