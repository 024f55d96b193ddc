-- Create the streams that do not exist yet, in the order of their names: with
-- lock_streams.sql after it, every writer waits in one canonical order.
-- Names come sorted.
insert into weir.streams (name, category, shard)
select n.name, n.category, n.shard
  from unnest((select $1::text[]), $2::text[], $3::smallint[]) with ordinality as n (name, category, shard, at)
 where not exists (select from weir.streams s where s.name = n.name)
 order by n.at
on conflict (name) do nothing
