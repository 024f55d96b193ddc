-- What was fixed when the store was created, and the number its locks share.
select shards, $1::text::regnamespace::oid::int4 from weir.settings
