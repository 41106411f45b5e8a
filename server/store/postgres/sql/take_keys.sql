-- Takes idempotency keys for jobs that are still to be decided on, all of one queue, keys distinct and sorted. Answers those that are new (or past their
-- retention); the others are answered by find_keys.sql, in a later statement. The rows are completed by give_keys.sql in the same transaction.
-- $1 queue, $2 scope, $3 keys, $4 fingerprints, $5 retention in microseconds. Locks the keys in their order; waits for a key that another
-- transaction has written and not committed, up to lock_timeout. Primary key of tenure.idempotency.
insert into tenure.idempotency as k (queue_id, scope, key, job_id, job_day, fingerprint, expires_at)
select $1, $2, i.key, 0, 0, i.fingerprint, now() + i.keep_us * interval '1 microsecond'
from unnest($3::text[], $4::bytea[], $5::bigint[]) with ordinality as i (key, fingerprint, keep_us, ord) order by i.ord
on conflict (queue_id, scope, key) do update
  set job_id = 0, job_day = 0, existing = false, fingerprint = excluded.fingerprint, expires_at = excluded.expires_at
  where k.expires_at <= now()
returning k.key;
