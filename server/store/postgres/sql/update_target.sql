-- Writes a target's settings. lock_target.sql comes before, in the same transaction. $1 id, $2 url, $3 region, $4 endpoint, $5 queues, $6 events,
-- $7 interval in microseconds, $8 cron, $9 time zone, $10 least age in days, $11 secret, $12 description, $13 when it runs next (NULL: as it was, or when
-- the interval says, if that is sooner).
with written as (
  update tenure.target as t
  set version = t.version + 1, updated_at = now(), url = $2, region = $3, endpoint = $4, queue_ids = $5::int[], events = $6, interval_us = $7,
      cron = $8, time_zone = $9, min_age_days = $10, secret = $11, description = $12
  where t.id = $1
)
update tenure.target_state as s
set next_at = coalesce($13::timestamptz, least(s.next_at, now() + $7::bigint * interval '1 microsecond')) where s.target_id = $1;
