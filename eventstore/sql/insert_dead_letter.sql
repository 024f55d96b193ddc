-- Keep a message that cannot become an event, whole. The same one again changes
-- nothing.
insert into weir.dead_letters (digest, reason, error, subject, header, data)
values ($1, $2, $3, $4, $5, $6)
on conflict (digest) do nothing
