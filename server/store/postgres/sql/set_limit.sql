-- Sets a limit as a whole. $1 queue, $2 scope, $3 key, $4 how many at once, $5 and $6 the rate (interval in microseconds, burst), $7 weight; NULL: none. A
-- queue's own limit gates it; where it had none on their number, or no rate, and gets one, its ready jobs are recalled (recall.sql). The caller holds the
-- queue's turn: an admission that begins later goes by the new limit.
with before as materialized (
  select l.max_leased, l.rate_interval_us from tenure.admission_limit l where l.queue_id = $1 and l.scope = 3 and $2::smallint = 3
),
changed as (
  insert into tenure.admission_limit as l (queue_id, scope, key, max_leased, rate_interval_us, rate_burst, weight) values ($1, $2, $3, $4, $5, $6, $7)
  on conflict (queue_id, scope, key) do update
    set max_leased = excluded.max_leased, rate_interval_us = excluded.rate_interval_us, rate_burst = excluded.rate_burst, weight = excluded.weight, updated_at = now()
  returning l.*
),
gated as (
  update tenure.queue as q set gated = true where q.id = $1 and $2 = 3 and not q.gated returning q.id
),
recalled as (
  insert into tenure.admission_recall as r (queue_id)
  select $1 where $2 = 3 and (($4::int is not null and (select b.max_leased from before b) is null)
                              or ($5::bigint is not null and (select b.rate_interval_us from before b) is null))
  on conflict (queue_id) do update
    set began = pg_current_xact_id(), since = clock_timestamp(), priority = null, rank = null, id = null, found = 0, last = false
),
told as (
  insert into tenure.event as e (slot, queue_id, type) select tenure.event_slot(), g.id, 4 from gated g
)
select c.* from changed c;
