-- Whether a table has the columns for writes past the engine.
select exists (select from pg_attribute where attrelid = 'weir.view_name'::regclass and attname = 'writes' and not attisdropped)
