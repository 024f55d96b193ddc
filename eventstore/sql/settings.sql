-- What was fixed when the store was created, the number its locks share, the
-- number of the table of events, and whether the sequence is behind the table.
select s.shards, c.relnamespace::int4, c.oid::text,
       (select coalesce(max(position), 0) from weir.events),
       (select case when is_called then last_value else last_value - 1 end from weir.position)
  from weir.settings s, pg_class c
 where c.oid = $1::text::regclass
