-- The last position that this connection drew.
select currval('weir.position')
