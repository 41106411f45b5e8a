-- What an operator wants to know about the database.
select current_setting('server_version') as version, current_setting('server_version_num')::int as version_number, current_user::text as role,
       (select coalesce(max(m.version), 0) from tenure.schema_migration m) as schema_version,
       now() as now, clock_timestamp() as clock, current_setting('synchronous_commit') <> 'off' as synchronous_commit;
