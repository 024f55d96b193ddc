-- Dead letters by reason.
select reason, count(*), min(received_at) from weir.dead_letters group by reason order by reason
