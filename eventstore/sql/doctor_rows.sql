-- Rows of a view that know of more than the log has, among the streams of the
-- events above position $1 up to $2: a version that does not exist, or a position
-- above that of their version. What lies between a row and its stream may be of
-- types that the view does not handle, which only its own code can tell.
select s.name, v.version, s.version
  from (select distinct stream_id from weir.events where position > $1 and position <= $2) t
 cross join lateral (select id, name, version from weir.streams where id = t.stream_id limit 1) s
 cross join lateral (select version, position from weir.view_name where key = s.name limit 1) v
  left join lateral (select position from weir.events where stream_id = s.id and version = v.version limit 1) e on true
 where v.version > 0 and (e.position is null or v.position > e.position)
 order by s.name
 limit $3
