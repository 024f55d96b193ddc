-- What the twin's view adds up to.
select count(*), coalesce(sum((state->>'payments')::bigint), 0)::bigint, coalesce(sum((state->>'amount')::bigint), 0)::bigint
  from twin.accounts
