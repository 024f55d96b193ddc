-- Write events in the order given, unless a guess was wrong (see hold_heads.sql);
-- positions are drawn in that order. The arrays are unnested in the select list, in
-- step with each other, where each value goes straight into its row: as functions
-- of a from clause they would all be stored away first, a tenth of the whole.
insert into weir.events (stream_id, version, event_id, order_id, shard, type, data, bytes, content_type, metadata)
select stream_id, version, event_id, order_id, shard, type, data, bytes, content_type, metadata
  from (select unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::uuid[]), unnest($4::uuid[]), unnest($5::smallint[]),
               unnest($6::text[]), unnest($7::json[]), unnest($8::bytea[]), unnest($9::text[]), unnest($10::json[])
         where current_setting('weir_append.held', true) is distinct from 'false')
    as n (stream_id, version, event_id, order_id, shard, type, data, bytes, content_type, metadata)
returning position
