-- Nothing of a view is parked any more, nor rewound.
with unparked as (delete from weir.parked where consumer = $1)
delete from weir.rewinding where consumer = $1
