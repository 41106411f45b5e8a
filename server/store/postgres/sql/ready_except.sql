-- Ready jobs of one queue that are not of certain tenants, in the order in which a claim reads them; a claim then takes them by id. $1 queue, $2
-- priorities, $3/$4 after (rank, id), $5 up to rank: the stretches; $6 ids that claims look at again; $7 tenants ('' are the jobs without one); $8
-- looks at so many of each stretch, so that a backlog of such a tenant costs no more than that; $9 answers at most so many. Locks nothing. Index job_ready. With each, how many were looked
-- at, of whichever tenant; one row without an id if there are none to answer.
with c as materialized (
  select 0::bigint as range_no, 0::bigint as rank, j.id, j.tenant from unnest($6::bigint[]) as r (id)
  cross join lateral (
    select j.id, j.tenant from tenure.job j where j.id = r.id and j.queue_id = $1 and (j.state + 0) = 3 limit 1
  ) j
  union all
  select r.range_no, j.rank, j.id, j.tenant
  from unnest($2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[]) with ordinality as r (priority, after_rank, after_id, upto_rank, range_no)
  cross join lateral (
    select j.rank, j.id, j.tenant from tenure.job j
    where j.queue_id = $1 and j.place = 3 and j.priority = r.priority and (j.rank, j.id) > (r.after_rank, r.after_id)
      and j.rank <= r.upto_rank and (j.state + 0) = 3
    order by j.rank, j.id limit $8
  ) j
)
select l.id, s.seen from (select count(*) as seen from c) s
left join lateral (
  select c.id from c where not (coalesce(c.tenant, '') = any ($7::text[])) order by c.range_no, c.rank, c.id limit $9
) l on true;
