-- Schedules whose slot has come, the earliest first. $1 limit, $2 ids to leave out. Reads the index schedule_next. Row sorts: 0 a schedule;
-- 1 the transaction's now(), and when the first of those that are not due will be.
(select 0 as row_sort, s.id, s.version, s.name, s.cron, s.time_zone, s.interval_us, s.anchor_at, s.catch_up, s.overlap, s.next_at,
        null::float8 as due_in
 from tenure.schedule s where s.next_at <= now() and s.id <> all ($2::bigint[]) order by s.next_at, s.id limit $1)
union all
select 1, null, null, null, null, null, null, null, null, null, now(),
       (select extract(epoch from s.next_at - now())::float8 from tenure.schedule s where s.next_at > now() order by s.next_at, s.id limit 1);
