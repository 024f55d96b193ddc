-- All leases: who holds each since when, by the clock of the database, and how far the
-- last of its readers is behind. A shard's readers are the consumers that follow the log
-- by shards; without a checkpoint they have seen nothing of it. The lease of the whole
-- log is read by the consumer that its scope names after the colon.
with readers as (
    select distinct consumer, shard < 0 as whole from weir.checkpoints),
slowest as (
    select distinct on (l.scope, l.shard) l.scope, l.shard, r.consumer, coalesce(c.position, 0) as position
      from weir.leases l
      join readers r on case when l.shard < 0 then r.whole and r.consumer = substr(l.scope, strpos(l.scope, ':') + 1) else not r.whole end
      left join weir.checkpoints c on c.consumer = r.consumer and c.shard = l.shard
     order by l.scope, l.shard, coalesce(c.position, 0), r.consumer),
lag as (
    select s.scope, s.shard, s.consumer, count(*) as events, min(e.recorded_at) as oldest
      from slowest s
      join weir.events e on e.shard = s.shard and e.position > s.position
     where e.position > (select min(position) from slowest where shard >= 0)
     group by s.scope, s.shard, s.consumer
     union all
    select s.scope, s.shard, s.consumer, count(*), min(e.recorded_at)
      from slowest s
      join weir.events e on e.position > s.position
     where s.shard < 0
     group by s.scope, s.shard, s.consumer)
select l.scope, l.shard, l.owner, coalesce(i.name, ''), l.epoch,
       extract(epoch from clock_timestamp() - l.taken_at)::float8,
       extract(epoch from clock_timestamp() - i.heartbeat_at)::float8,
       coalesce(g.events, 0), coalesce(extract(epoch from clock_timestamp() - g.oldest), 0)::float8,
       coalesce(g.consumer, '')
  from weir.leases l
  left join weir.instances i on i.id = l.owner
  left join lag g on g.scope = l.scope and g.shard = l.shard
 order by l.scope, l.shard
