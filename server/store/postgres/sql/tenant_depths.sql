-- How many jobs of each tenant have not ended, counted no further than it matters. $1 queue, $2 tenants, $3 where to stop. Locks nothing.
-- Index: job_tenant.
select t.tenant, n.jobs
from unnest($2::text[]) as t (tenant)
cross join lateral (
  select count(*) as jobs from (select 1 from tenure.job j where j.queue_id = $1 and j.tenant = t.tenant limit $3::bigint) one
) n;
