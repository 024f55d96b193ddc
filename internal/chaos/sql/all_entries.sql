select event_id, stream, version, position, shard, writer, coalesce(owner::text, ''), coalesce(epoch, 0)
  from chaos_entries
