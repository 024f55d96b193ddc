-- How far below the head $2 (read before this statement) the lowest in-flight
-- key of this store lies; null when there is none. Keys are positions modulo
-- 2^32: a distance in the upper half belongs to a writer that registered after
-- the head was read, and draws above it.
select max(distance)
  from (select ($2::bigint - objid::bigint) & 4294967295 as distance
          from pg_locks
         where locktype = 'advisory'
           and database = (select oid from pg_database where datname = current_database())
           and classid = $1::int4::oid
           and objsubid = 2) keys
 where distance < 2147483648
