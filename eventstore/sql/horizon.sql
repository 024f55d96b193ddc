-- The horizon, and the highest position stored. The last position drawn, $2, was read
-- before this statement. Nothing above a key in flight counts: keys are positions
-- modulo 2^32, and a distance in the upper half belongs to a writer that registered
-- after the last position was read, and draws above it. The horizon stops at what is
-- stored; this statement may see less of that than is there by now, never more.
with floor as materialized (
       select coalesce(max(distance), 0) as below
         from (select ($2::bigint - objid::bigint) & 4294967295 as distance
                 from pg_locks
                where locktype = 'advisory'
                  and database = (select oid from pg_database where datname = current_database())
                  and classid = $1::int4::oid
                  and objsubid = 2) keys
        where distance < 2147483648)
select coalesce((select max(position) from weir.events where position <= $2 - (select below from floor)), 0),
       coalesce((select max(position) from weir.events), 0)
