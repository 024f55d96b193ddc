-- How all views are doing. A consumer without a checkpoint for a shard has seen nothing
-- of it; one that follows the whole log has a single one, for shard -1.
select v.view, v.edition, v.schema, v.rebuilt_at, c.lowest,
       lag.events, coalesce(extract(epoch from clock_timestamp() - lag.oldest), 0)::float8,
       c.inversions, c.rewinds, c.from_snapshot, c.replayed,
       (select count(*) from weir.parked p where p.consumer = v.view),
       (select count(*) from weir.rewinding r where r.consumer = v.view),
       greatest(rows.reltuples, 0)::bigint, pg_total_relation_size(rows.oid),
       greatest(shots.reltuples, 0)::bigint, pg_total_relation_size(shots.oid),
       b.phase, b.done, b.total
  from weir.editions v
 cross join lateral (
       select case when bool_or(shard = -1) or count(*) >= $1::int then min(position) else 0 end as lowest,
              coalesce(sum(inversions), 0)::bigint as inversions, coalesce(sum(rewinds), 0)::bigint as rewinds,
              coalesce(sum(from_snapshot), 0)::bigint as from_snapshot, coalesce(sum(replayed), 0)::bigint as replayed
         from weir.checkpoints
        where consumer = v.view) c
 cross join lateral (
       select count(*) as events, min(e.recorded_at) as oldest
         from weir.events e
         left join weir.checkpoints k on k.consumer = v.view and k.shard in (e.shard, -1)
        where e.position > c.lowest and e.position > coalesce(k.position, 0)) lag
  join pg_namespace n on n.oid = (select relnamespace from pg_class where oid = 'weir.events'::regclass)
  join pg_class rows on rows.relnamespace = n.oid and rows.relname = 'view_' || v.view
  join pg_class shots on shots.relnamespace = n.oid and shots.relname = 'snap_' || v.view
  left join weir.rebuilds b on b.view = v.view
 order by v.view
