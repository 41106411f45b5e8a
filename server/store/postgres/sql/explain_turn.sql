-- What stands before a job that waits for its tenant's turn: how many jobs of the queue are ready with its priority or a higher one, and how many tenants
-- wait for turns, both counted up to a bound. $1 queue, $2 the job's priority, $3 the bound. Looks at no more than ten
-- times as many entries of job_ready, since leased jobs are among them; steps from tenant to tenant through
-- job_tenant_gate. Locks nothing.
with recursive tenant as (
  (select coalesce(j.tenant, '') collate "C" as name from tenure.job j
   where j.queue_id = $1 and (j.gate + 0) = 6 order by coalesce(j.tenant, '') collate "C" limit 1)
  union all
  select n.name from tenant t
  cross join lateral (
    select coalesce(j.tenant, '') collate "C" as name from tenure.job j
    where j.queue_id = $1 and (j.gate + 0) = 6 and (coalesce(j.tenant, '') collate "C") > t.name
    order by coalesce(j.tenant, '') collate "C" limit 1
  ) n
)
select (select count(*) from (
          select 1 from (select j.state + 0 as state from tenure.job j
                         where j.queue_id = $1 and j.place = 3 and j.priority >= $2::smallint and j.rank >= 0 limit 10 * $3::bigint) e
          where e.state = 3 limit $3) c) as ready,
       (select count(*) from (select 1 from tenant t limit $3) c) as tenants;
