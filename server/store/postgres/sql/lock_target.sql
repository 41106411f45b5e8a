-- A target with its secret, to be changed in this transaction: locks its row. $1 name.
select t.id, t.name, t.version, t.purpose, t.url, t.region, t.endpoint, t.queue_ids, t.events, t.interval_us, t.cron, t.time_zone, t.min_age_days, t.paused,
       t.secret <> '' as has_secret, t.description, t.created_at, t.updated_at, s.taken, s.last_success_at, s.last_error_at, s.last_error,
       array(select q.name from tenure.queue q where q.id = any (t.queue_ids) order by q.name) as queues, t.secret
from tenure.target t join tenure.target_state s on s.target_id = t.id where t.name = $1 for update of t;
