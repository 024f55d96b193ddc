-- Move checkpoints forward from where their consumer left them. One that somebody
-- has moved meanwhile stays.
insert into weir.checkpoints as c (consumer, shard, position)
select $1, n.shard, $4
  from unnest((select $2::smallint[]), $3::bigint[]) as n (shard, was)
 where n.was = 0
    or exists (select from weir.checkpoints where consumer = $1 and shard = n.shard)
on conflict (consumer, shard) do update
   set position = excluded.position, updated_at = now()
 where c.position = ($3::bigint[])[array_position($2::smallint[], c.shard)]
