-- Forget an edition under way.
delete from weir.view_name
