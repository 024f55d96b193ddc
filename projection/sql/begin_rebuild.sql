-- Begin a rebuild, or take over one that nobody has heard of for half a minute; no row
-- comes back when somebody is at work on it. What one of another schema has done is
-- worth nothing.
insert into weir.rebuilds as r (view, schema, worker, phase, upto, total, started_at, alive_at)
values ($1, $2, $3, $4, $5::text::json, $6, clock_timestamp(), clock_timestamp())
on conflict (view) do update
   set worker = excluded.worker, alive_at = clock_timestamp(), schema = excluded.schema,
       phase      = case when r.schema = excluded.schema then r.phase else excluded.phase end,
       stream_id  = case when r.schema = excluded.schema then r.stream_id else 0 end,
       upto       = case when r.schema = excluded.schema then r.upto else excluded.upto end,
       done       = case when r.schema = excluded.schema then r.done else 0 end,
       started_at = case when r.schema = excluded.schema then r.started_at else clock_timestamp() end
 where r.alive_at < clock_timestamp() - interval '30 seconds'
returning done = 0 and stream_id = 0, phase, stream_id, upto, done, total
