-- An instance that stopped cleanly gives its leases back at once.
with released as (
    update weir.leases set owner = null where owner = $1
)
delete from weir.instances where id = $1
