-- Note that a consumer deals with a message, unless it has. Whoever comes second
-- waits for the transaction of the first, and then finds its row.
insert into weir.processed (consumer, message_id) values ($1, $2)
on conflict do nothing
