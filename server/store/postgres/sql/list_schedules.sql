-- Schedules without payloads. $1 names after this, $2 that start so, $3 limit. Reads by the unique index on name.
select s.id, s.name, s.version, s.cron, s.time_zone, s.interval_us, s.anchor_at, s.catch_up, s.overlap, s.paused, s.next_at, s.last_slot,
       s.last_job_queue_id, s.last_job_day, s.last_job_id, s.fired, s.skipped_missed, s.skipped_overlap, s.description, s.created_at,
       s.updated_at, s.kind, s.priority, s.tenant, s.headers, s.ttl_us, s.max_attempts, s.crash_budget, s.backoff_initial_us,
       s.backoff_multiplier, s.backoff_max_us, q.name as queue
from tenure.schedule s join tenure.queue q on q.id = s.queue_id
where s.name > $1 and starts_with(s.name, $2) order by s.name limit $3;
