-- Lock streams in the order given, as lock_streams.sql does, see whether all are
-- where the writer believes them to be, and register in flight if so (see
-- register.sql). Who waited for a row sees what its holder made of it, so the
-- comparison is exact. insert_events.sql and advance_streams.sql are sent before this
-- is answered, and find the answer in a setting.
select held, now(),
       set_config('weir_append.held', held::text, true),
       set_config('weir_append.registered', $5::text, true),
       case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end,
       (select pg_advisory_xact_lock_shared($4::int4, (case when is_called then last_value else last_value - 1 end)::bit(32)::int4)::text
          from weir.position
         where held)
  from (select count(*) filter (where s.version = n.version and s.last_order = n.last_order) = cardinality($1::bigint[]) as held
          from (select unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::uuid[])) as n (id, version, last_order)
         cross join lateral (
               select version, last_order
                 from weir.streams
                where id = n.id
                limit 1
                  for update) s) as locked
