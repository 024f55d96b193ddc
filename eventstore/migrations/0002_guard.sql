-- Writers that do not register are refused; aggregates have snapshots.

create function weir.require_registration() returns trigger
    language plpgsql
as $weir_body$
begin
    if current_setting('weir_append.registered', true) is distinct from tg_relid::text then
        raise exception using
            errcode = 'object_not_in_prerequisite_state',
            message = 'events are written through Append only',
            detail = 'This transaction has not registered in flight, so readers of the log could pass its events before they appear.',
            hint = 'Use Append, AppendTx, Ingest or Import of the event store.';
    end if;
    return null;
end $weir_body$;

create trigger events_require_registration
    before insert on weir.events
    for each statement execute function weir.require_registration();

create table weir.snapshots (
    stream_id bigint not null,
    kind      text collate "C" not null,
    schema    integer not null,
    version   bigint not null,
    last_order uuid not null,
    state     json not null,
    taken_at  timestamptz not null default now(),
    primary key (stream_id, kind)
) with (fillfactor = 50);

comment on table weir.snapshots is 'folds of aggregates, to begin a load from; worth nothing: delete at will';
