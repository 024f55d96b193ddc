-- The last position that this session drew.
select currval('weir.position')
