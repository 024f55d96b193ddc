-- Rows made before have none, until the next rebuild.
alter table weir.view_name add column if not exists fingerprint bytea
