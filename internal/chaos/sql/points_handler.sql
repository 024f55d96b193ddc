-- Who handled the last event that was.
select writer from chaos_handled order by number desc limit 1
