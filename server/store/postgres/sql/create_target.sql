-- $1 name, $2 purpose, $3 paused, $4 most targets that may be, then as update_target.sql from its $2, the last one when it runs first
-- (NULL: at once). No row: the name is taken, or there are too many. It begins with
-- what this statement does not see.
with made as (
  insert into tenure.target as t (name, purpose, paused, url, region, endpoint, queue_ids, events, interval_us, cron, time_zone, min_age_days, secret, description)
  select $1, $2, $3, $5, $6, $7, $8::int[], $9, $10, $11, $12, $13, $14, $15 where (select count(*) from tenure.target) < $4::bigint
  on conflict (name) do nothing returning t.id
),
placed as (
  insert into tenure.target_state as s (target_id, next_at) select m.id, coalesce($16::timestamptz, now()) from made m
)
select m.id from made m;
