-- What guards the log and is missing, broken or switched off.
select g.name
  from (values ('events_stream_version'), ('events_event_id'), ('events_position'), ('streams_name')) as g (name)
 where not exists (
       select from pg_index i join pg_class c on c.oid = i.indexrelid
        where i.indrelid in ('weir.events'::regclass, 'weir.streams'::regclass)
          and c.relname = g.name and i.indisunique and i.indisvalid and i.indisready)
 union all
select g.name
  from (values ('events_require_registration')) as g (name)
 where not exists (
       select from pg_trigger t
        where t.tgrelid = 'weir.events'::regclass and t.tgname = g.name and t.tgenabled in ('O', 'A'))
