-- End one backend of the programs $1, rather one that is at work than one that
-- waits for it; $2 decides among these.
select pg_terminate_backend(pid)
  from (select pid
          from pg_stat_activity
         where datname = current_database() and application_name = any ($1::text[])
         order by state is null or state = 'idle', md5(pid::text || $2::text)
         limit 1) victim
