-- Lock the streams in the order given, and see where they are. The lateral
-- lookup probes the index for each name, whatever the planner believes of the
-- size of the table. The array stands in a subquery to hide its length from the
-- planner, who would plan anew each time for the sake of a short one.
select s.id, s.version, s.last_order, now()
  from unnest((select $1::text[])) with ordinality as n (name, at)
 cross join lateral (
       select id, version, last_order
         from weir.streams
        where name = n.name
        limit 1
          for update) s
 order by n.at
