-- What should not be there any more when everything has settled.
select format('%s is parked at version %s of stream %s: %s', consumer, version, stream_id, error) from weir.parked
union all
select format('%s still rewinds stream %s', consumer, stream_id) from weir.rewinding
union all
select format('a message became a dead letter: %s: %s', reason, error) from weir.dead_letters
