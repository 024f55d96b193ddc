-- Register in flight, before the first position is drawn: a shared lock, held to
-- the end of the transaction, whose key is the last position drawn so far. Every
-- position this transaction draws is higher, so readers that stop at the lowest
-- such key never pass an event that is still to appear (see horizon.sql).
-- The setting is what the trigger on the table asks for. What is acknowledged must
-- be durable, whatever the database's default is. All ends with the transaction.
select pg_advisory_xact_lock_shared($1::int4,
       (case when is_called then last_value else last_value - 1 end)::bit(32)::int4),
       set_config('weir_append.registered', $2::text, true),
       case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end
  from weir.position
