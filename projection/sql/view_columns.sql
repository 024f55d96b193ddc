-- Whether a table is there, and has the column that came last.
select c.oid is not null,
       exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'fingerprint' and not a.attisdropped)
  from (select 1) one
  left join pg_class c on c.relname = $1
        and c.relnamespace = (select relnamespace from pg_class where oid = 'weir.events'::regclass)
