-- Move the heads of locked streams. An upsert on the key, because it can only
-- ever probe the index; the rows exist, so nothing is inserted.
insert into weir.streams (id, name, category, shard, version, last_order)
overriding system value
select id, '', '', 0, version, last_order
  from unnest($1::bigint[], $2::bigint[], $3::uuid[]) as n (id, version, last_order)
on conflict (id) do update set version = excluded.version, last_order = excluded.last_order
