-- A page of the rows that are there, in the order of keys.
select key, state, coalesce(version, 0), event_id, coalesce(position, 0), updated_at
  from weir.view_name
 where ($2::boolean or key > $1) and state is not null
 order by key
 limit $3
