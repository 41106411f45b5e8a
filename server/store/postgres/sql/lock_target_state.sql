-- How far a target has been served, to be moved in this transaction. $1 target. No row: it was deleted. check_leader.sql comes before.
select s.done::text as done, s.until::text as until, s.at_xid::text as at_xid, s.at_id, s.plan_xid::text as plan_xid, s.plan_id, s.plan_count,
       s.taken, coalesce(s.plan_queue_ids, t.queue_ids) as queue_ids, coalesce(s.plan_events, t.events) as events
from tenure.target_state s join tenure.target t on t.id = s.target_id where s.target_id = $1 for update of s;
