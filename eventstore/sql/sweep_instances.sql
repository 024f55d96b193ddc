-- Forget instances that have been silent for a day.
delete from weir.instances where heartbeat_at < clock_timestamp() - interval '1 day'
