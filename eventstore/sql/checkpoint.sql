-- Move checkpoints forward; never back.
insert into weir.checkpoints as c (consumer, shard, position)
select $1, shard, position from unnest($2::smallint[], $3::bigint[]) as n (shard, position)
on conflict (consumer, shard) do update
   set position = excluded.position, updated_at = now()
 where c.position < excluded.position
