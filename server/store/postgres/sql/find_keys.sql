-- The jobs behind idempotency keys, and whether the keys' retention is not past. $1 queue, $2 scope, $3 keys. Reads by primary key, one key at a time (`limit 1`).
select k.key, k.job_id, k.job_day, k.fingerprint, k.existing, k.live
from unnest($3::text[]) as i (key)
cross join lateral (
  select k.key, k.job_id, k.job_day, k.fingerprint, k.existing, k.expires_at > now() as live from tenure.idempotency k
  where k.queue_id = $1 and k.scope = $2 and k.key = i.key limit 1
) k;
