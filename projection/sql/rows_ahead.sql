-- Rows that have seen more than the next edition, and how far they are.
select v.key, v.position
  from weir.view_name v
  left join weir.next_name n on n.key = v.key
 where v.position > coalesce(n.position, 0)
