-- Write rows past the engine, each unless it is further in the log already, by what was
-- folded into it or by a write before. Where either has no position, the write wins.
-- What the engine knows of a row (version, event_id, position, fingerprint) stays as it
-- is: a row without events has the fingerprint of none. Whoever folds into the view
-- holds its edition from before it reads, so no fold overwrites what it has not seen;
-- at the gate, which is a queue, nobody overtakes a write for ever.
with gate as materialized (
    select pg_advisory_xact_lock(hashtextextended('weir.editions' || $1, 0))),
held as materialized (
    select from gate cross join weir.editions e where e.view = $1 for no key update of e),
written as (
    insert into weir.view_name as v (key, state, fingerprint, written_position, written_id, writes)
    select n.key, n.state::jsonb, '\x00000000000000000000000000000000', n.position, n.event_id, 1
      from held
     cross join unnest($2::text[], $3::text[], $4::bigint[], $5::uuid[]) as n (key, state, position, event_id)
    on conflict (key) do update
       set state = excluded.state, writes = coalesce(v.writes, 0) + 1, updated_at = now(),
           written_position = greatest(v.written_position, excluded.written_position),
           written_id = greatest(v.written_id, excluded.written_id)
     where excluded.written_position is null
        or greatest(v.position, v.written_position) is null
        or excluded.written_position >= greatest(v.position, v.written_position)
    returning v.key)
select (select count(*) from held), array(select key from written)
