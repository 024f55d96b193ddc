-- Messages that handlers have dealt with.

create table weir.processed (
    consumer   text collate "C" not null,
    message_id uuid not null,
    at         timestamptz not null default now(),
    primary key (consumer, message_id)
);

create index processed_at on weir.processed using brin (at);

comment on table weir.processed is 'which consumer has dealt with which message, noted in the transaction of what it did; rows are forgotten after a time';
