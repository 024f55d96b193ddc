-- Note streams that are rewound beside the others of a consumer.
insert into weir.rewinding (consumer, stream_id, shard, position)
select $1, s.id, s.shard, n.position
  from unnest($2::text[], $3::bigint[]) as n (name, position)
  join weir.streams s on s.name = n.name
on conflict (consumer, stream_id) do nothing
