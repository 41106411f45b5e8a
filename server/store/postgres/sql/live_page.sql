-- Live jobs of a queue by id, from a place on. $1 queue, $2 ids after this, $3 how many rows of all queues are looked at. Reads the primary key. Row sorts: 0 a job; 1 how
-- many were looked at, and the last.
with scanned as materialized (
  select j.id, j.queue_id from tenure.job j where j.id > $2 order by j.id limit $3
)
select 0 as row_sort, null::bigint as scanned, j.id, j.queue_id, j.day, j.state, j.kind, j.priority, j.tenant, j.attempt, j.failures, j.crashes, j.releases, j.snoozes,
       j.worker, j.lease_until, j.due_at, j.expires_at, j.created_at, j.updated_at, j.started_at, j.payload_size, j.content_type, j.error_message, j.error_type,
       j.effect_key, j.retry_of
from scanned s cross join lateral (select j.* from tenure.job j where j.id = s.id and j.queue_id = $1 limit 1) j
where s.queue_id = $1
union all
select 1, count(*), max(s.id), null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
from scanned s;
