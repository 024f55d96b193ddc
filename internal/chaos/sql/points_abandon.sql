-- Have the others take whoever rebuilt for dead.
update weir.rebuilds set alive_at = alive_at - interval '1 minute'
