-- Where a recall stands. $1 queue. `settled`: nobody can be at work any more who does not know that the queue has changed: all transactions that
-- wrote when it did have ended, and statements that had not written yet have had 10 s, twice what a daemon's statement has. The caller holds the
-- queue's turn, taken in an earlier statement. No row: there is none.
select q.gated, r.began::text as began, r.since, r.priority, r.rank, r.id, r.found, r.last,
       r.began < pg_snapshot_xmin(pg_current_snapshot()) and r.since < clock_timestamp() - interval '10 s' as settled
from tenure.admission_recall r join tenure.queue q on q.id = r.queue_id
where r.queue_id = $1;
