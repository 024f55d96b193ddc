-- What is wrong with the streams of the events above position $1 up to $2: a
-- neighbour that is missing, one that lies on the wrong side in the log, a version
-- that is there twice, an event beyond the head of its stream, an event without a
-- stream. A stream and its
-- events change in one transaction, so one statement sees them agree.
select distinct on (e.stream_id, f.version) coalesce(s.name, ''), f.version, f.fault, coalesce(s.version, 0), e.position
  from weir.events e
  left join lateral (select name, version from weir.streams where id = e.stream_id limit 1) s on true
  left join lateral (select position from weir.events p where p.stream_id = e.stream_id and p.version = e.version - 1 limit 1) p on true
  left join lateral (select position from weir.events n where n.stream_id = e.stream_id and n.version = e.version + 1 limit 1) n on true
  left join lateral (select position from weir.events t
                      where t.stream_id = e.stream_id and t.version = e.version and t.position <> e.position limit 1) t on true
 cross join lateral (values
       (e.version,     'orphan',  s.name is null),
       (e.version,     'beyond',  e.version > s.version),
       (e.version,     'twice',   t.position is not null),
       (e.version - 1, 'missing', p.position is null and e.version > 1 and s.name is not null),
       (e.version + 1, 'missing', n.position is null and e.version < s.version),
       (e.version,     'order',   p.position > e.position)) as f (version, fault, is_so)
 where e.position > $1 and e.position <= $2 and f.is_so
 order by e.stream_id, f.version
 limit $3
