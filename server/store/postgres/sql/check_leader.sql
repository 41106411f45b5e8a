-- For led work of several statements: holds the term to the end of the transaction. $1 worker, $2 term. No row: it is over.
select 1 from tenure.leader l where l.worker = $1 and l.term = $2 for share;
