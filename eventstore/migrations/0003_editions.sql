-- Read models: editions, rebuilds, and rewinds that go on beside the others.

alter table weir.checkpoints
    add column inversions    bigint not null default 0,
    add column rewinds       bigint not null default 0,
    add column from_snapshot bigint not null default 0,
    add column replayed      bigint not null default 0;

comment on column weir.checkpoints.inversions is 'events that sorted below what their row had seen';
comment on column weir.checkpoints.rewinds is 'rows that were folded again, from_snapshot of them not from the beginning, folding replayed events';

create table weir.editions (
    view       text collate "C" primary key,
    edition    bigint not null default 1,
    schema     integer not null,
    changes    bigint not null default 1,
    rebuilt_at timestamptz
) with (fillfactor = 50);

comment on table weir.editions is 'which edition of a view its table holds; whoever writes to the table holds the row; changes grows when rows are replaced by hand or by a rebuild';

create table weir.rebuilds (
    view       text collate "C" primary key,
    schema     integer not null,
    worker     uuid not null,
    phase      text not null,
    stream_id  bigint not null default 0,
    upto       json not null,
    total      bigint not null,
    done       bigint not null default 0,
    started_at timestamptz not null default now(),
    alive_at   timestamptz not null default now()
) with (fillfactor = 50);

comment on table weir.rebuilds is 'editions under way';

create table weir.rewinding (
    consumer   text collate "C" not null,
    stream_id  bigint not null,
    shard      smallint not null,
    position   bigint not null,
    started_at timestamptz not null default now(),
    primary key (consumer, stream_id)
);

comment on table weir.rewinding is 'streams that a consumer folds again beside the others; its checkpoint passes their events from that position on';
