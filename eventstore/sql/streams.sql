-- A page of the streams whose names lie between $1 and $2, both excluded, in the
-- order of names, each with its last event.
select s.name, s.version, s.shard, s.created_at, e.position, e.event_id, e.type, e.recorded_at
  from weir.streams s
 left join lateral (
       select * from weir.events
        where stream_id = s.id and version = s.version
        limit 1) e on true
 where s.name > $1 and s.name < $2 and s.version > 0
 order by s.name
 limit $3
