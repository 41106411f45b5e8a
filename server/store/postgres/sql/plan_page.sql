-- Fixes the page that is about to be written. $1 target, whose row lock_target_state.sql has locked, $2, $3 its last event, $4 how many events it has, $5 queues and $6 events
-- that it was made for.
update tenure.target_state as s
set plan_xid = $2::text::xid8, plan_id = $3, plan_count = $4, plan_queue_ids = $5::int[], plan_events = $6
where s.target_id = $1;
