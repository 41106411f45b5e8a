-- The first of each tenant's jobs that wait for their turn: higher priority first, then the order of enqueue. $1 queue, $2 tenants, $3 at most
-- so many of each. Locks nothing: admit.sql does. Index job_tenant_gate.
select t.name, h.id, h.priority from unnest($2::text[], $3::int[]) as t (name, most)
cross join lateral (
  select j.id, j.priority from tenure.job j
  where j.queue_id = $1 and (coalesce(j.tenant, '') collate "C") = t.name and (j.gate + 0) = 6
  order by j.priority desc, j.id limit t.most
) h;
