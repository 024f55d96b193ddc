-- Rows of streams that do not exist.
select v.key, 'extra', coalesce(v.version, 0), 0::bigint
  from weir.view_name v
 where not exists (select from weir.streams s where s.name = v.key)
 order by 1
 limit $1
