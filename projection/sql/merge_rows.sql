-- Write the rows in which the next edition differs.
with merged as (
    insert into weir.view_name as v (key, state, version, event_id, position, fingerprint)
    select n.key, n.state, n.version, n.event_id, n.position, n.fingerprint
      from weir.next_name n
      left join weir.view_name o on o.key = n.key
     where o.key is null
        or (o.state, o.version, o.event_id, o.position, o.fingerprint)
           is distinct from (n.state, n.version, n.event_id, n.position, n.fingerprint)
    on conflict (key) do update
       set state = excluded.state, version = excluded.version, event_id = excluded.event_id,
           position = excluded.position, fingerprint = excluded.fingerprint, updated_at = now()
    returning xmax = 0 as added)
select count(*) filter (where added), count(*) filter (where not added) from merged
