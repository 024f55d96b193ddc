-- The event store: streams, their events, and who reads how far.

create table weir.settings (
    one        boolean primary key default true check (one),
    shards     smallint not null check (shards between 1 and 4096),
    created_at timestamptz not null default now()
);

create table weir.streams (
    id         bigint generated always as identity primary key,
    name       text collate "C" not null,
    category   text collate "C" not null,
    shard      smallint not null,
    version    bigint not null default 0,
    last_order uuid,
    created_at timestamptz not null default now(),
    constraint streams_name unique (name)
) with (fillfactor = 80);

comment on column weir.streams.last_order is 'the highest order id in the stream; a decision that would sort before it gets an order id of its own';

-- Drawn only after the writer has registered in flight (see register.sql), so
-- that readers know which numbers can still appear. CACHE 1: a cached block
-- would be drawn long before it is used.
create sequence weir.position as bigint cache 1;

create table weir.events (
    position     bigint not null default nextval('weir.position'),
    stream_id    bigint not null,
    version      bigint not null check (version > 0),
    event_id     uuid not null,
    order_id     uuid,
    shard        smallint not null,
    type         text collate "C" not null,
    data         json,
    bytes        bytea,
    content_type text,
    metadata     json,
    recorded_at  timestamptz not null default now(),
    constraint events_stream_version primary key (stream_id, version),
    constraint events_event_id unique (event_id),
    constraint events_one_payload check ((data is null) <> (bytes is null))
);

alter sequence weir.position owned by weir.events.position;

create unique index events_position on weir.events (position);

comment on column weir.events.data is 'the payload when it is JSON, byte for byte as it came';
comment on column weir.events.bytes is 'the payload when it is not JSON';
comment on column weir.events.order_id is 'sorts the event where its id would come too early; null: the id does';

do $weir_body$
begin
    alter table weir.events alter column data set compression lz4;
    alter table weir.events alter column bytes set compression lz4;
exception when feature_not_supported or invalid_parameter_value then
    raise notice 'this server was built without lz4: large payloads use pglz';
end $weir_body$;

create table weir.checkpoints (
    consumer   text collate "C" not null,
    shard      smallint not null,
    position   bigint not null default 0,
    updated_at timestamptz not null default now(),
    primary key (consumer, shard)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create table weir.instances (
    id           uuid primary key,
    name         text not null,
    started_at   timestamptz not null default clock_timestamp(),
    heartbeat_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

create table weir.leases (
    scope    text collate "C" not null,
    shard    smallint not null,
    owner    uuid,
    epoch    bigint not null default 0,
    taken_at timestamptz,
    primary key (scope, shard)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

create table weir.parked (
    consumer   text collate "C" not null,
    stream_id  bigint not null,
    version    bigint not null,
    shard      smallint not null,
    reason     text not null,
    error      text not null,
    attempts   integer not null,
    parked_at  timestamptz not null default now(),
    primary key (consumer, stream_id)
);

comment on table weir.parked is 'a stream that a consumer stopped at, because the event at that version failed again and again';

create table weir.dead_letters (
    id          bigint generated always as identity primary key,
    digest      bytea not null unique,
    reason      text not null,
    error       text not null,
    subject     text not null,
    header      bytea not null,
    data        bytea not null,
    received_at timestamptz not null default now()
);

comment on table weir.dead_letters is 'messages of the broker that could not be stored as events, whole';

create function weir.ulid(id uuid) returns text
    language sql immutable strict parallel safe
as $weir_body$
    select string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ',
               1 + substring(bits from 1 + 5 * i for 5)::bit(5)::int, 1), '' order by i)
      from (select ('00' || right(('x' || replace(id::text, '-', ''))::bit(128)::text, 128))::bit(130) as bits) b,
           generate_series(0, 25) i
$weir_body$;

create view weir.log as
select e.position, s.name as stream, e.version, weir.ulid(e.event_id) as id, e.type,
       e.data, e.bytes, e.metadata, e.recorded_at
  from weir.events e
  join weir.streams s on s.id = e.stream_id;

comment on view weir.log is 'the events with names and ids as text, for people';
