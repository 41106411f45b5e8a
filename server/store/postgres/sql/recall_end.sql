-- Remembers how far a recall has come. $1 queue, $2 to $4 (priority, rank, id) of the last key that was read (NULL: the pass is over), $5 how
-- many this pass has found, $6 whether it began once nobody could be at work who did not know. $7: the recall is over. $8 the
-- change of the queue that it is for: if another one came meanwhile, it begins anew. The caller holds the queue's turn.
with over as (
  delete from tenure.admission_recall as r where r.queue_id = $1 and r.began = $8::text::xid8 and $7::boolean
)
update tenure.admission_recall as r set priority = $2, rank = $3, id = $4, found = $5, last = $6
where r.queue_id = $1 and r.began = $8::text::xid8 and not $7;
