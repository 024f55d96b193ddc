-- What a projection applied, in the order of applying it. Nothing is unique here, so
-- that what comes twice shows.
create table if not exists weir.chaos_applied (
    n        bigint generated always as identity primary key,
    position bigint not null,
    event_id uuid not null,
    stream   text not null,
    version  bigint not null
)
