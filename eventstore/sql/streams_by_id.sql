-- Streams above a number, in the order of their numbers.
select id, name, shard, version from weir.streams where id > $1 order by id limit $2
