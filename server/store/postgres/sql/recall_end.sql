-- Remembers how far a recall has come. $1 queue, $2 since, $3 to $5 (priority, rank, id) of the last key that was read (NULL: the pass is over), $6 how
-- many this pass has found, $7 whether it began once nobody could be at work who did not know. $8: the recall is over. $9 the
-- change of the queue that it is for: if another one came meanwhile, it begins anew. The caller holds the queue's turn.
with over as (
  delete from tenure.admission_recall as r where r.queue_id = $1 and r.began = $9::text::xid8 and $8::boolean
)
update tenure.admission_recall as r set since = $2::timestamptz, priority = $3, rank = $4, id = $5, found = $6, last = $7
where r.queue_id = $1 and r.began = $9::text::xid8 and not $8;
