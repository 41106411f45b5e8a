-- How many stand before a job in the line of its tenant, counted up to a bound. $1 queue, $2 tenant ('' for none), $3 its priority, $4 its id, $5 the
-- bound. Index job_tenant_gate.
select count(*) as ahead from (
  select 1 from tenure.job j
  where j.queue_id = $1 and (coalesce(j.tenant, '') collate "C") = $2 and (j.gate + 0) = 6
    and (j.priority > $3::smallint or (j.priority = $3 and j.id < $4::bigint))
  order by j.priority desc, j.id limit $5
) c;
