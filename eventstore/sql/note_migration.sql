-- Remember that a migration was done.
insert into weir.migrations (number, name, checksum) values ($1, $2, $3)
