-- The version of the schema.
select coalesce(max(m.version), 0) as version from tenure.schema_migration m;
