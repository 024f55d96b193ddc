-- What the twin folds into: a table like that of our view, and one checkpoint.
create table twin.accounts (like weir.view_accounts including all) with (fillfactor = 80);
create table twin.checkpoint (
    one      boolean primary key,
    position bigint not null
) with (fillfactor = 50);
insert into twin.checkpoint values (true, 0)
