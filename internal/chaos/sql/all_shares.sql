-- How many leases each instance has, and how long it has been silent.
select coalesce((select writer from chaos_entries e where e.owner = i.id limit 1), left(i.id::text, 8)) || ': ' || count(l.owner) ||
       ', silent for ' || round(extract(epoch from clock_timestamp() - i.heartbeat_at), 1) || ' s'
  from weir.instances i
  left join weir.leases l on l.owner = i.id
 where i.heartbeat_at > clock_timestamp() - interval '20 s'
 group by i.id
 order by 1
