-- Who is in flight (see register.sql): sessions, and prepared transactions, which
-- belong to none. Of the latter the lock on their own number says which they are.
-- What another role's session does is null to those who may not see it.
select coalesce(l.pid, 0), coalesce(p.gid, ''), l.objid::bigint,
       coalesce(a.application_name, ''), coalesce(a.usename, p.owner, '')::text, coalesce(a.state, ''),
       a.query_start, coalesce(left(a.query, 500), ''),
       coalesce(extract(epoch from clock_timestamp() - coalesce(a.xact_start, p.prepared)), 0)::float8
  from pg_locks l
  left join pg_stat_activity a on a.pid = l.pid
  left join pg_locks x on l.pid is null and x.pid is null and x.locktype = 'transactionid'
                      and x.mode = 'ExclusiveLock' and x.virtualtransaction = l.virtualtransaction
  left join pg_prepared_xacts p on p.transaction = x.transactionid and p.database = current_database()
 where l.locktype = 'advisory'
   and l.database = (select oid from pg_database where datname = current_database())
   and l.classid = $1::int4::oid
   and l.objsubid = 2
 order by 9 desc
 limit 100
