-- The tables of the views that are keyed by stream: those whose consumer follows
-- the log shard by shard.
select substr(c.relname, 6)
  from pg_class c
 where c.relnamespace = (select relnamespace from pg_class where oid = 'weir.events'::regclass)
   and c.relkind in ('r', 'p') and c.relname like 'view\_%'
   and exists (select from weir.checkpoints k where k.consumer = substr(c.relname, 6) and k.shard >= 0)
   and (select count(*) from pg_attribute a
         where a.attrelid = c.oid and not a.attisdropped and a.attname in ('key', 'version', 'position')) = 3
 order by 1
