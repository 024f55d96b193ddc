-- An instance that stopped cleanly gives its leases back at once, and forgets
-- others that have been silent for a day.
with released as (
    update weir.leases set owner = null where owner = $1
)
delete from weir.instances
 where id = $1 or heartbeat_at < clock_timestamp() - interval '1 day'
