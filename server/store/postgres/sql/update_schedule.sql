-- Writes a schedule's settings. lock_schedule.sql comes before, in the same transaction. $1 id, $2 next slot, $3 cron, $4 time zone,
-- $5 interval in microseconds, $6 anchor, $7 catch_up, $8 overlap, $9 description, $10 queue, $11 kind, $12 priority, $13 tenant, $14 payload,
-- $15 content type, $16 headers, $17 ttl in microseconds, $18 max_attempts, $19 crash_budget, $20-$22 backoff.
update tenure.schedule as s
set version = s.version + 1, updated_at = now(), next_at = $2, cron = $3, time_zone = $4, interval_us = $5, anchor_at = $6, catch_up = $7,
    overlap = $8, description = $9, queue_id = $10, kind = $11, priority = $12, tenant = $13, payload = $14::bytea, content_type = $15,
    headers = $16::text::jsonb, ttl_us = $17, max_attempts = $18, crash_budget = $19, backoff_initial_us = $20, backoff_multiplier = $21,
    backoff_max_us = $22
where s.id = $1;
