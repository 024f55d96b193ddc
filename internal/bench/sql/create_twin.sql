-- The twin's table of events: the columns, checks and indexes of ours, whatever
-- the migrations make of it.
create schema twin
       create table events (like weir.events including all)
