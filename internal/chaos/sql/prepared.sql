-- Transactions that were prepared and then forgotten by a session that died.
select gid from pg_prepared_xacts where database = current_database()
