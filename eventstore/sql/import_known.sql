-- Which of these ids are stored already. Ids alone, so that an import that starts
-- over passes quickly over what is there.
select w.event_id
  from unnest($1::uuid[]) as w (event_id)
 cross join lateral (select from weir.events where event_id = w.event_id limit 1) e
