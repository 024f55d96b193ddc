-- Of the $2 streams with the highest numbers below $1: how many there are, the
-- lowest number, and the names, heads and last events of those where these differ.
select count(*), coalesce(min(s.id), 0),
       coalesce(array_agg(s.name order by s.id) filter (where s.version <> s.last), '{}'),
       coalesce(array_agg(s.version order by s.id) filter (where s.version <> s.last), '{}'),
       coalesce(array_agg(s.last order by s.id) filter (where s.version <> s.last), '{}')
  from (select s.id, s.name, s.version, coalesce(e.version, 0) as last
          from (select id, name, version from weir.streams where id < $1 order by id desc limit $2) s
          left join lateral (select version from weir.events where stream_id = s.id order by version desc limit 1) e on true) s
