-- Leases by scope: all, and those whose owner has been silent for longer than $1
-- or is not known.
select l.scope, count(*), count(*) filter (where l.owner is not null and i.id is null)
  from weir.leases l
  left join weir.instances i on i.id = l.owner and i.heartbeat_at >= clock_timestamp() - $1::interval
 group by l.scope
 order by l.scope
