-- Ends the sessions of replicas whose own lease ran out (a stopped process can hold row locks for as long as it is stopped), and
-- forgets replicas that have been gone for a day and hold nothing. Belongs to no queue, and so to shard 0. $1 worker, $2 first shard and
-- $3 term of the fence. Looks for what a replica holds by its grants.
with in_term as materialized (
  select true as yes from tenure.shard_lease l
  where l.worker = $1 and l.first_shard = $2 and l.first_shard = 0 and l.term = $3 and l.replica_id is not null for share
),
ended as materialized (
  select pg_terminate_backend(a.pid) as done
  from tenure.replica r
  cross join unnest(r.backend_pids, r.backend_starts) as b (pid, started)
  join pg_stat_activity a on a.pid = b.pid and a.backend_start = b.started
  where r.lease_until < now() and exists (select 1 from in_term)
),
forgotten as (
  delete from tenure.replica as r
  where r.lease_until < now() and r.heartbeat_at < now() - interval '1 day' and exists (select 1 from in_term)
    and (select g.id from tenure.lease_grant g where g.replica_id = r.id limit 1) is null
)
select count(*) filter (where e.done) as ended from ended e;
