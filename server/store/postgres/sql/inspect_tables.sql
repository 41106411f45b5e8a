-- Rows of the hot tables by PostgreSQL's statistics. Reads system views only.
select s.relname::text as name, s.n_dead_tup as dead, s.n_live_tup as live
from pg_stat_user_tables s
where s.schemaname = 'tenure' and s.relname in ('job', 'idempotency', 'lease_grant', 'queue_count', 'replica', 'leader', 'worker', 'schedule', 'schedule_run', 'forward')
order by s.relname;
