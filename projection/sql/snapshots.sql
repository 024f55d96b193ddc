-- The snapshots of these keys, oldest first; with $4 of those only whose rows have seen
-- an event above the key's id. The state comes along of the newest of this schema that
-- sorts below that id; without ids, of all of this schema.
select k.key, s.last, s.upto, s.reached, s.position, s.schema, s.fingerprint,
       case when $2::uuid[] is null and s.schema = $3
              or s.last = (select last from weir.snap_name
                            where key = k.key and schema = $3 and last < k.below
                            order by last desc limit 1)
            then s.state end
  from unnest((select $1::text[]), $2::uuid[]) as k (key, below)
 cross join lateral (select where not $4 or exists (select from weir.view_name where key = k.key and event_id > k.below)) r
 cross join lateral (select * from weir.snap_name where key = k.key order by last) s
