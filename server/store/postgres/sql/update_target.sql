-- Writes a target's settings. lock_target.sql comes before, in the same transaction. $1 id, $2 url, $3 region, $4 endpoint, $5 queues, $6 events,
-- $7 interval in microseconds, $8 least age in days, $9 secret, $10 description. A new interval counts from now.
with written as (
  update tenure.target as t
  set version = t.version + 1, updated_at = now(), url = $2, region = $3, endpoint = $4, queue_ids = $5::int[], events = $6, interval_us = $7,
      min_age_days = $8, secret = $9, description = $10
  where t.id = $1
)
update tenure.target_state as s set next_at = least(s.next_at, now() + $7::bigint * interval '1 microsecond') where s.target_id = $1;
