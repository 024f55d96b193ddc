-- Write one event after the last one of its stream. If somebody is as fast, the
-- primary key refuses one of the two.
insert into twin.events (stream_id, version, event_id, shard, type, data, metadata)
select $1::bigint, coalesce(max(version), 0) + 1, $2::uuid, $3::smallint, $4::text, $5::text::json, $6::text::json
  from twin.events
 where stream_id = $1
