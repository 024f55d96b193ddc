-- One row that is there.
select key, state, coalesce(version, 0), event_id, coalesce(position, 0), updated_at
  from weir.view_name
 where key = $1 and state is not null
