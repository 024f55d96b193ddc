-- What writes past the engine leave in a row, apart from what the engine knows of it:
-- the highest position and event id that they came with, and how many they were.
alter table weir.view_name
    add column if not exists written_position bigint,
    add column if not exists written_id uuid,
    add column if not exists writes bigint
