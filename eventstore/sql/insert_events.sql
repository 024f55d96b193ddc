-- Write events in the order given; positions are drawn in that order.
insert into weir.events (stream_id, version, event_id, order_id, shard, type, data, bytes, content_type, metadata)
select stream_id, version, event_id, order_id, shard, type, data::json, bytes, content_type, metadata::json
  from unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::uuid[], $5::smallint[], $6::text[],
              $7::text[], $8::bytea[], $9::text[], $10::text[])
    as n (stream_id, version, event_id, order_id, shard, type, data, bytes, content_type, metadata)
returning position
