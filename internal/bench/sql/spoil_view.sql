-- Make every row wrong.
update weir.view_accounts set state = '{}'
