-- How many events of each stream the view has.
select substr(key, length('account-') + 1)::int, version::int
from weir.view_accounts
