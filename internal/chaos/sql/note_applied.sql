-- Note an event as applied, in the transaction of the checkpoint.
insert into weir.chaos_applied (position, event_id, stream, version) values ($1, $2, $3, $4)
