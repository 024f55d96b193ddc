-- Write one event if its stream is at the version expected. If somebody is as
-- fast, the primary key refuses one of the two.
insert into twin.events (stream_id, version, event_id, shard, type, data, metadata)
select $1::bigint, $2::bigint + 1, $3::uuid, $4::smallint, $5::text, $6::text::json, $7::text::json
 where $2 = (select coalesce(max(version), 0) from twin.events where stream_id = $1)
