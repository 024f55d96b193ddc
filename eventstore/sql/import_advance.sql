-- Lock streams in the order given and move their heads by $2 events each: one
-- visit instead of two, since history asks no stream where it is before it is
-- added. The rows exist, so nothing is inserted; that the names come back is the
-- proof.
insert into weir.streams (id, name, category, shard, version, last_order)
overriding system value
select id, '', '', 0, added, last_order
  from unnest($1::bigint[], $2::bigint[], $3::uuid[]) with ordinality as n (id, added, last_order, at)
 order by at
on conflict (id) do update set version = streams.version + excluded.version,
                               last_order = greatest(streams.last_order, excluded.last_order)
returning name, version
