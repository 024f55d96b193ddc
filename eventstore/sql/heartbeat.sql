-- An instance says that it lives, and sees how many leases are still its own.
with beat as (
    insert into weir.instances (id, name) values ($1, $2)
    on conflict (id) do update set heartbeat_at = clock_timestamp())
select count(*) from weir.leases where owner = $1
