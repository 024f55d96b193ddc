-- What the load of everything and its checker need: the rows of the handler, which
-- nothing keeps from coming twice, and who had which lease under which epoch.
create table chaos_entries (
    event_id uuid not null,
    stream   text not null,
    version  bigint not null,
    position bigint not null,
    shard    smallint not null,
    writer   text not null,
    owner    uuid,
    epoch    bigint,
    at       timestamptz not null default clock_timestamp()
);

create index on chaos_entries (at);
create index on chaos_entries (writer, at);
create index on chaos_entries (owner);

create table chaos_leases (
    scope text not null,
    shard smallint not null,
    owner uuid,
    epoch bigint not null,
    at    timestamptz not null default clock_timestamp()
);

create function chaos_note_lease() returns trigger language plpgsql as $body$
begin
    insert into chaos_leases (scope, shard, owner, epoch) values (new.scope, new.shard, new.owner, new.epoch);
    return null;
end $body$;

create trigger chaos_leases after insert or update on weir.leases
    for each row execute function chaos_note_lease();

-- What the handler of relayed events has done, in the order in which it did.
create table chaos_handled (
    number   bigint generated always as identity primary key,
    event_id uuid not null,
    stream   text not null,
    version  bigint not null,
    writer   text not null,
    owner    uuid
);
