-- What was done to the schema so far.
select number, name, checksum from weir.migrations order by number
