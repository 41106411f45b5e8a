-- How queues admit: those that have a gate of their own, or had blocked jobs when events were last folded. Blocked jobs by what they wait for, each
-- counted up to $1; tenants that wait for turns, up to $2 in all; a queue's limit, and how many of its jobs hold it, counted up to it. For metrics, and no
-- more often than its cost allows: it reads all entries of those queues in job_key_1 to job_key_4, where the gate stands in the index, the rows of jobs with groups
-- through job_group, what jobs wait for through dependency_job, and who waits at the queue's gate through job_gate. No index is there for this statement
-- alone, since each blocked job would pay for it. Steps from tenant to tenant through job_tenant_gate. Locks nothing.
with recursive page as materialized (
  select p.queue_id from (
    select c.queue_id from tenure.queue_count c where c.blocked > 0
    union
    select q.id from tenure.queue q where q.gated
  ) p
),
tenant as (
  select q.id as queue_id, t.name from tenure.queue q
  cross join lateral (
    select coalesce(j.tenant, '') collate "C" as name from tenure.job j
    where j.queue_id = q.id and (j.gate + 0) = 6 order by coalesce(j.tenant, '') collate "C" limit 1
  ) t
  where q.gated and q.fair_tenants
  union all
  select t.queue_id, n.name from tenant t
  cross join lateral (
    select coalesce(j.tenant, '') collate "C" as name from tenure.job j
    where j.queue_id = t.queue_id and (j.gate + 0) = 6 and (coalesce(j.tenant, '') collate "C") > t.name
    order by coalesce(j.tenant, '') collate "C" limit 1
  ) n
),
tenants as materialized (
  select t.queue_id, count(*) as tenants from (select t.queue_id from tenant t limit $2) t group by t.queue_id
),
dependent as materialized (
  select w.queue_id, count(*) as jobs from (
    select distinct on (d.job_id + 0) d.queue_id from tenure.dependency d where d.job_id + 0 > 0 and d.outcome is null order by d.job_id + 0 limit $1
  ) w group by w.queue_id
)
select p.queue_id, q.name, q.fair_tenants, coalesce(t.tenants, 0) as tenants, l.max_leased, l.rate_interval_us is not null as has_rate, h.held,
       coalesce(d.jobs, 0) as dependency, g.jobs as in_group, k.jobs as in_key, w.jobs as in_queue
from page p
join tenure.queue q on q.id = p.queue_id
left join tenants t on t.queue_id = p.queue_id
left join dependent d on d.queue_id = p.queue_id
left join lateral (
  select l.max_leased, l.rate_interval_us from tenure.admission_limit l where l.queue_id = p.queue_id and l.scope = 3 and l.key = '' limit 1
) l on true
cross join lateral (
  select count(*) as held from (
    select 1 from tenure.job j where j.queue_id = p.queue_id and j.place = 3 and j.rank >= 0 limit coalesce(l.max_leased, 0)
  ) c
) h
cross join lateral (
  select count(*) as jobs from (select 1 from tenure.job j where j.queue_id = p.queue_id and j.group_key > '' and j.gate = 1 limit $1) c
) g
cross join lateral (
  select (select count(*) from (select 1 from tenure.job j where j.queue_id = p.queue_id and j.concurrency_keys[1] > '' and j.gate = 2 limit $1) c) +
         (select count(*) from (select 1 from tenure.job j where j.queue_id = p.queue_id and j.concurrency_keys[2] > '' and j.gate = 3 limit $1) c) +
         (select count(*) from (select 1 from tenure.job j where j.queue_id = p.queue_id and j.concurrency_keys[3] > '' and j.gate = 4 limit $1) c) +
         (select count(*) from (select 1 from tenure.job j where j.queue_id = p.queue_id and j.concurrency_keys[4] > '' and j.gate = 5 limit $1) c) as jobs
) k
cross join lateral (
  select count(*) as jobs from (select 1 from tenure.job j where j.queue_id = p.queue_id and j.gate = 6 limit $1) c
) w
order by p.queue_id;
