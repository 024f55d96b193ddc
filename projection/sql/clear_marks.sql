-- Nothing of a view is parked or rewound any more.
with unparked as (delete from weir.parked where consumer = $1)
delete from weir.rewinding where consumer = $1
