-- Up to which of its events each row of the view has applied them.
select key, version from weir.view_chain
