-- What was done to the schema so far.
select number, name, checksum, applied_at from weir.migrations order by number
