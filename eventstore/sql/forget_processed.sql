-- Forget some of what a consumer dealt with before a time.
delete from weir.processed
 where ctid = any (array (
       select ctid from weir.processed where at < $2 and consumer = $1 limit $3))
