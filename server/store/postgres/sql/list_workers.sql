-- Workers that claimed in the last day or hold a lease. $1 names after this, $2 limit.
select w.worker, w.last_claim_at, w.queues, coalesce(h.leased, 0) as leased
from (
  select w.worker, w.last_claim_at, w.queues from tenure.worker w
  where w.worker > $1 order by w.worker limit $2
) w
left join (
  select j.worker, count(*) as leased
  from tenure.lease_grant g
  cross join lateral unnest(g.ids, g.tokens) as i (id, token)
  cross join lateral (
    select j.worker from tenure.job j where j.id = i.id and j.queue_id = g.queue_id and j.token = i.token and (j.state + 0) = 4 limit 1
  ) j
  group by j.worker
) h on h.worker = w.worker
order by w.worker;
