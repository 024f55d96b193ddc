-- What was handled, in the order in which it was.
select event_id, stream, version from chaos_handled order by number
