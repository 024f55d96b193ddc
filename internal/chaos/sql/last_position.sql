-- The last position drawn, whoever has not committed yet.
select case when is_called then last_value else last_value - 1 end from weir.position
