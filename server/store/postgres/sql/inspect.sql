-- What an operator wants to know about the database.
select current_setting('server_version') as version, current_setting('server_version_num')::int as version_number, current_user::text as role,
       (select coalesce(max(m.version), 0) from tenure.schema_migration m) as schema_version,
       now() as now, clock_timestamp() as clock, current_setting('synchronous_commit') <> 'off' as synchronous_commit,
       (select extract(epoch from now() - a.xact_start)::float8 from pg_stat_activity a
        where a.xact_start is not null and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
        order by a.xact_start limit 1) as oldest_age,
       (select format('pid %s, application "%s", user "%s", state %s', a.pid, a.application_name, a.usename, a.state)
        from pg_stat_activity a
        where a.xact_start is not null and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
        order by a.xact_start limit 1) as oldest_holder,
       (select coalesce(sum(s.n_dead_tup), 0)::bigint from pg_stat_user_tables s where s.schemaname = 'tenure' and s.relname = 'job') as dead,
       (select coalesce(sum(s.n_live_tup), 0)::bigint from pg_stat_user_tables s where s.schemaname = 'tenure' and s.relname = 'job') as live;
