-- The table of a view. A row whose state is null is a tombstone: the fold deleted
-- it, and its version goes on counting.
create table if not exists weir.view_name (
    key         text collate "C" primary key,
    state       jsonb,
    version     bigint,
    event_id    uuid,
    position    bigint,
    fingerprint bytea,
    updated_at  timestamptz not null default now()
) with (fillfactor = 80)
