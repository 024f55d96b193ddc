-- Of the first $1 rows of a view: those that have seen events of a stream which
-- does not exist.
select v.key
  from (select key, version from weir.view_name order by key limit $1) v
 where v.version > 0 and not exists (select from weir.streams s where s.name = v.key)
 order by v.key
 limit $2
