-- Note a view that is new here.
insert into weir.editions (view, schema) values ($1, $2) on conflict (view) do nothing
