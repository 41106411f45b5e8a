-- $1 name, $2 now() of this transaction, $3 paused, $4 next slot (NULL if paused), then as update_schedule.sql from its $3. No row: the name is taken.
insert into tenure.schedule as s (name, created_at, updated_at, paused, next_at, cron, time_zone, interval_us, anchor_at, catch_up, overlap,
                                  description, queue_id, kind, priority, tenant, payload, content_type, headers, ttl_us, max_attempts,
                                  crash_budget, backoff_initial_us, backoff_multiplier, backoff_max_us)
values ($1, $2, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16::bytea, $17, $18::text::jsonb, $19, $20, $21, $22, $23, $24)
on conflict (name) do nothing returning s.id;
