-- How long the slowest fact took from its making until it was stored, in milliseconds.
-- The first six bytes of an id are when it was made.
select coalesce(max(extract(epoch from e.recorded_at) * 1000
       - ('x' || left(replace(e.event_id::text, '-', ''), 12))::bit(48)::bigint), 0)::bigint
  from weir.events e
 where e.type = 'chaos.said'
