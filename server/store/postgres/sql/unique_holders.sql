-- Who holds unique keys, and where they stand; after unique_lock.sql. The first row is the queue itself: name NULL, whether it has a gate of its
-- own. $1 queue, $2 names, $3 how many ids of new jobs to draw: in the first row. One whose time to start is over counts no
-- more, although the lifecycle worker has not ended it yet. Locks nothing. Primary keys.
select null::text as name, 0::bigint as job_id, 0 as job_day, false as held, null::int as state, false as waits, q.gated as gates, now() as now,
       array(select nextval('tenure.job_id') from generate_series(1, $3::int))::bigint[] as fresh, tenure.today() as today
from tenure.queue q where q.id = $1
union all
select k.name, k.job_id, k.job_day, k.held_until > now(), j.state, j.state = 2 and j.gate is null,
       tenure.first_gate(j.group_key, j.concurrency_keys, (select q.gated from tenure.queue q where q.id = $1)) is not null, now(), null, tenure.today()
from unnest($2::text[]) as i (name)
cross join lateral (select k.* from tenure.unique_key k where k.queue_id = $1 and k.name = i.name limit 1) k
left join lateral (
  select (j.state + 0)::int as state, j.gate, j.group_key, j.concurrency_keys from tenure.job j where j.id = k.job_id and j.queue_id = $1
    and not coalesce(j.expires_at <= now() and j.started_at is null, false) limit 1
) j on true;
