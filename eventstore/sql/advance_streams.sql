-- Move the heads of locked streams, unless a guess was wrong (see hold_heads.sql). An
-- upsert on the key, because it can only ever probe the index; the rows exist, so
-- nothing is inserted.
insert into weir.streams (id, name, category, shard, version, last_order)
overriding system value
select id, '', '', 0, version, last_order
  from (select unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::uuid[])
         where current_setting('weir_append.held', true) is distinct from 'false')
    as n (id, version, last_order)
on conflict (id) do update set version = excluded.version, last_order = excluded.last_order
