-- Lock the streams in the order given, and see where they are. The lateral
-- lookup probes the index for each name, whatever the planner believes of the
-- size of the table.
select s.id, s.version, s.last_order, now()
  from unnest($1::text[]) with ordinality as n (name, at)
 cross join lateral (
       select id, version, last_order
         from weir.streams
        where name = n.name
        limit 1
          for update) s
 order by n.at
