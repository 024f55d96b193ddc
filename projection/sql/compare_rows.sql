-- Rows that are not as they should be, of the keys in $7. Tombstones count as rows.
select coalesce(n.key, v.key),
       case when v.key is null then 'missing'
            when n.key is null then 'extra'
            when v.version is distinct from n.version then 'version'
            when v.fingerprint is distinct from n.fingerprint or v.event_id is distinct from n.event_id then 'order'
            else 'state' end,
       coalesce(v.version, 0), coalesce(n.version, 0)
  from unnest($1::text[], $2::text[], $3::bigint[], $4::uuid[], $5::bigint[], $6::bytea[])
    as n (key, state, version, event_id, position, fingerprint)
  full join (select r.*
               from unnest($7::text[]) as k (key)
              cross join lateral (select * from weir.view_name where key = k.key limit 1) r) v
    on v.key = n.key
 where v.key is null or n.key is null
    or (v.state, v.version, v.event_id, v.position, v.fingerprint)
       is distinct from (n.state::jsonb, n.version, n.event_id, n.position, n.fingerprint)
 order by 1
