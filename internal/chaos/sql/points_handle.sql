-- One row for one event that was relayed, with whoever holds the lease of the handler.
insert into chaos_handled (event_id, stream, version, writer, owner)
values ($1, $2, $3, $4, (select owner from weir.leases where scope = 'handler:handled'))
