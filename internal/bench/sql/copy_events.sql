-- Give the twin the events that the store has.
insert into twin.events select * from weir.events
