-- Keep a message that cannot become an event, whole. The same one again changes
-- nothing. It is acknowledged next, so it must be durable, whatever the default is.
insert into weir.dead_letters (digest, reason, error, subject, header, data)
select $1, $2, $3, $4, $5, $6
  from (select case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end) durable
on conflict (digest) do nothing
