-- The rows of these keys, tombstones too.
select r.key, r.state, r.version, r.event_id, r.position, r.fingerprint
  from unnest((select $1::text[])) as k (key)
 cross join lateral (select * from weir.view_name where key = k.key limit 1) r
