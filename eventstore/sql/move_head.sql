-- Do what hold_heads.sql does for one stream, and move its head at once: one write to
-- the row instead of two. Who waits for the row compares with what its holder made of
-- it; where that is something else, nothing is moved, so there is nothing to undo.
with moved as (
       update weir.streams
          set version = $4, last_order = $5
        where id = $1 and version = $2 and last_order = $3
       returning id)
select held, now(),
       set_config('weir_append.held', held::text, true),
       set_config('weir_append.registered', $7::text, true),
       case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end,
       (select pg_advisory_xact_lock_shared($6::int4, (case when is_called then last_value else last_value - 1 end)::bit(32)::int4)::text
          from weir.position
         where held)
  from (select exists (select from moved) as held) as found
