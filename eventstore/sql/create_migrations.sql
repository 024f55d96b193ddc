-- Where the schema remembers what was done to it.
create table if not exists weir.migrations (
    number     integer primary key,
    name       text not null,
    checksum   text not null,
    applied_at timestamptz not null default now()
)
