-- Write events of known streams and versions, for a twin. What the columns left
-- out hold is null with us, too.
insert into twin.events (stream_id, version, event_id, shard, type, data, metadata)
select stream_id, version, event_id, shard, type, data::json, metadata::json
  from unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::smallint[], $5::text[], $6::text[], $7::text[])
    as n (stream_id, version, event_id, shard, type, data, metadata)
