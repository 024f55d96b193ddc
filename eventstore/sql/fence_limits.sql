-- A transaction under a fence ends before the lease can be taken: whoever waits for
-- the lease waits for this transaction. Both settings end with it.
select set_config('statement_timeout', $1, true),
       set_config('idle_in_transaction_session_timeout', $1, true)
