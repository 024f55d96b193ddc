-- The snapshot of a stream of this kind and schema.
select p.version, p.last_order, p.state
  from weir.streams s
  join weir.snapshots p on p.stream_id = s.id
 where s.name = $1 and p.kind = $2 and p.schema = $3
