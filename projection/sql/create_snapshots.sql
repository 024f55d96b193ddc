-- Earlier states of the rows of a view, worth nothing but time: delete at will.
create table if not exists weir.snap_name (
    key         text collate "C" not null,
    last        uuid not null,
    upto        bigint not null,
    reached     bigint not null,
    position    bigint not null,
    schema      integer not null,
    fingerprint bytea,
    state       json,
    taken_at    timestamptz not null default now(),
    primary key (key, last)
)
