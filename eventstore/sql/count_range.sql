-- How many events lie above position $1 up to $2, of these shards, or of all.
select count(*) from weir.events
 where position > $1 and position <= $2
   and ($3::smallint[] is null or shard = any ($3))
