-- The numbers of streams, by name, in the order given.
select s.id
  from unnest($1::text[]) with ordinality as n (name, at)
 cross join lateral (select id from weir.streams where name = n.name limit 1) s
 order by n.at
