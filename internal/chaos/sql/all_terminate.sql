-- End some backends of services, drawn by $2.
select count(pg_terminate_backend(pid))
  from (select pid
          from pg_stat_activity
         where datname = current_database() and application_name like 'chaos %' and pid <> pg_backend_pid()
         order by md5($2 || pid)
         limit $1) drawn
