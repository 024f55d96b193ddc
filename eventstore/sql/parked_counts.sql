-- How many streams each consumer is stopped at.
select consumer, count(*) from weir.parked group by consumer
