-- Move back those checkpoints of a consumer that are above a position, and count
-- them. The others go one back: their consumer may be further than it has noted, and
-- knows that it was sent back by finding its checkpoint elsewhere.
with was as (
    select n.shard, coalesce(c.position, 0) as position
      from generate_series(0, $3::int - 1) as n (shard)
      left join weir.checkpoints c on c.consumer = $1 and c.shard = n.shard
), moved as (
    insert into weir.checkpoints as c (consumer, shard, position)
    select $1, shard, least($2::bigint, position - 1) from was
    on conflict (consumer, shard) do update
       set position = least($2::bigint, c.position - 1), updated_at = now()
)
select count(*) filter (where position > $2) from was
