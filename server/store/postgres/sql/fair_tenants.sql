-- A page of the tenants that wait for their turn in a queue, with weight and the virtual time of their next start. $1 queue, $2 the tenant after
-- which the page begins (NULL: the first), $3 at most so many. Steps from tenant to tenant through job_tenant_gate. Locks nothing.
with recursive tenant as (
  (select coalesce(j.tenant, '') collate "C" as name from tenure.job j
   where j.queue_id = $1 and (j.gate + 0) = 6 and ($2::text is null or (coalesce(j.tenant, '') collate "C") > $2)
   order by coalesce(j.tenant, '') collate "C" limit 1)
  union all
  select n.name from tenant t
  cross join lateral (
    select coalesce(j.tenant, '') collate "C" as name from tenure.job j
    where j.queue_id = $1 and (j.gate + 0) = 6 and (coalesce(j.tenant, '') collate "C") > t.name
    order by coalesce(j.tenant, '') collate "C" limit 1
  ) n
)
select t.name, l.weight, s.next_start from (select t.name from tenant t limit $3) t
left join lateral (
  select l.weight from tenure.admission_limit l where l.queue_id = $1 and l.scope = 4 and l.key = t.name limit 1
) l on true
left join lateral (
  select s.next_start from tenure.fair_share s where s.queue_id = $1 and s.tenant = t.name limit 1
) s on true;
