-- Whether all checkpoints of a consumer are at a position, and nothing below it is being
-- rewound. Shards without an event up to there need no checkpoint.
select not exists (
           select from weir.checkpoints where consumer = $1 and position < $3
              and (shard = -1 or exists (select from weir.events e where e.shard = checkpoints.shard and e.position > checkpoints.position and e.position <= $3)))
   and ($2::int = (select count(*) from weir.checkpoints where consumer = $1)
        or not exists (
           select from weir.events e
            where e.position <= $3
              and not exists (select from weir.checkpoints c where c.consumer = $1 and c.shard in (e.shard, -1))))
   and not exists (select from weir.rewinding where consumer = $1 and position <= $3)
