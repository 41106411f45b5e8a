-- Marks live jobs as waited for: whatever ends one of them from now on says so. $1 queue, $2 ids (sorted, distinct), $3 days of enqueue (one per id). Answers those
-- that are live; what is not answered has ended, or never was. Locks their rows; waits for who holds one, up to lock_timeout: he may be about to
-- end it. Primary key of tenure.job.
with locked as materialized (
  select j.id, j.awaited from unnest($2::bigint[], $3::int[]) with ordinality as i (id, day, ord)
  cross join lateral (
    select j.id, j.awaited from tenure.job j where j.id = i.id and j.queue_id = $1 and j.day = i.day for no key update
  ) j
),
marked as (
  update tenure.job as j set awaited = true
  where j.queue_id = $1 and j.id = any (array(select l.id from locked l where l.awaited is not true))
)
select l.id from locked l;
