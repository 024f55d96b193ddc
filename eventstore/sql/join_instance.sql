-- An instance says that it lives.
insert into weir.instances (id, name) values ($1, $2)
on conflict (id) do update set heartbeat_at = clock_timestamp()
