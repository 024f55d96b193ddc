-- How many events the twin has, each at a version of its stream without holes.
select coalesce(sum(events), 0)::bigint
  from (select count(*) as events from twin.events group by stream_id having max(version) = count(*)) streams
