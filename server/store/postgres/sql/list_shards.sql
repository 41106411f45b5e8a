-- The ranges of all workers by shard, who holds them, and how that replica fares with the worker. Of what nobody holds: why, that is, the
-- error for which the shard rests, or the last one of a replica that left.
select l.worker, l.first_shard, l.last_shard, l.term, coalesce(h.replica_id, 0) as replica_id, coalesce(h.holder, '') as holder,
       case when h.replica_id is not null then l.since end as since, m.last_success_at,
       coalesce(m.last_error, nullif(l.last_error, ''), e.last_error, '') as last_error, coalesce(m.runs, 0) as runs, coalesce(m.restarts, 0) as restarts
from tenure.shard_lease l
left join lateral (select l.replica_id, l.holder where l.replica_id is not null and l.expires_at > now()) h on true
left join tenure.shard_member m on m.worker = l.worker and m.replica_id = h.replica_id
left join lateral (
  select o.last_error from tenure.shard_member o where o.worker = l.worker and o.last_error <> '' and h.replica_id is null
  order by o.expires_at desc limit 1
) e on true
order by l.worker, l.first_shard;
