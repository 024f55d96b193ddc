-- How far the rows of these keys are.
select r.key, coalesce(r.position, 0)
  from unnest($1::text[]) as k (key)
 cross join lateral (select key, position from weir.view_name where key = k.key limit 1) r
