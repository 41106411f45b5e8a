-- What claim.sql does not answer of a job, since few have it. $1 queue, $2 ids.
select j.id, j.expires_at, j.max_attempts, j.crash_budget, j.backoff_initial_us, j.backoff_multiplier, j.backoff_max_us, j.error_message,
       j.error_type, j.error_detail, j.error_attempt, j.error_at, j.retry_of
from unnest($2::bigint[]) as i (id)
cross join lateral (select j.* from tenure.job j where j.id = i.id and j.queue_id = $1 limit 1) j;
