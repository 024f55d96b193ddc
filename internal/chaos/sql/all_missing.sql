-- Those of these ids that are not stored.
select w.id
  from unnest($1::uuid[]) as w (id)
 where not exists (select from weir.events e where e.event_id = w.id)
