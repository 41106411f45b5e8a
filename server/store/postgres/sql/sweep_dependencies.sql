-- A page of what jobs wait for, as the net under those who look when a job ends. $1, $2 the job waited for and the one that waits after which the page begins,
-- $3 at most so many rows. `ended`: the one waited for is live no more, and its end has not been counted; `waits`: the other one waits still. Locks
-- nothing. Primary keys (`limit 1` keeps each look one by key).
select d.awaited_id, d.awaited_queue_id, d.job_id, d.outcome is null and live.yes is null as ended, waiting.yes is not null as waits
from (
  select d.* from tenure.dependency d where (d.awaited_id, d.job_id) > ($1::bigint, $2::bigint) order by d.awaited_id, d.job_id limit $3
) d
left join lateral (select true as yes from tenure.job j where j.id = d.awaited_id and j.queue_id = d.awaited_queue_id limit 1) live on true
left join lateral (
  select true as yes from tenure.job j where j.id = d.job_id and j.queue_id = d.queue_id and (j.state + 0) = 2 and j.gate is null limit 1
) waiting on true
order by d.awaited_id, d.job_id;
