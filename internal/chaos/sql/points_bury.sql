-- Have the others take a process for dead that is: its heartbeat is long ago.
update weir.instances
   set heartbeat_at = heartbeat_at - interval '1 minute'
 where id in (select owner from chaos_entries where writer = $1
              union
              select owner from chaos_handled where writer = $1
              except
              select owner from chaos_entries where writer <> $1)
