-- How many events there are, of each of these shards up to a position.
select count(*)
  from weir.events e
  join unnest($1::smallint[], $2::bigint[]) as u (shard, upto) on u.shard = e.shard and e.position <= u.upto
