-- The targets of a purpose that are served now, with their secrets. $1 purpose. `fresh`: something has become visible in the outbox since the target was
-- there, whether it is for it or not: two ranges of the index on (xid, id).
select t.id, t.name, t.version, t.purpose, t.url, t.region, t.endpoint, t.queue_ids, t.events, t.interval_us, t.cron, t.time_zone, t.min_age_days, t.paused,
       t.secret <> '' as has_secret, t.description, t.created_at, t.updated_at, s.taken, s.last_success_at, s.last_error_at, s.last_error,
       array(select q.name from tenure.queue q where q.id = any (t.queue_ids) order by q.name) as queues, t.secret,
       t.events <> 0 and (s.until is not null
         or exists (select 1 from tenure.outbox o where o.xid >= pg_snapshot_xmax(s.done))
         or exists (select 1 from pg_snapshot_xip(s.done) as x (xid)
                    cross join lateral (select 1 from tenure.outbox o where o.xid = x.xid limit 1) o)) as fresh,
       (select extract(epoch from d.due_at - now())::float8 from tenure.delivery d
        where d.target_id = t.id and not d.dead order by d.due_at, d.id limit 1) as next_delivery,
       s.next_at as next_run, now() as now
from tenure.target t join tenure.target_state s on s.target_id = t.id
where t.purpose = $1 and not t.paused order by t.id;
