-- Who holds vacuum back, the oldest first: open transactions of clients, prepared transactions, replication slots. Reads system views only.
-- Without pg_read_all_stats the sessions of other roles do not show. xids: how many transactions have begun since; a slot has no time.
select h.kind, h.age, h.xids, h.pid, h.name, h.owner, h.state, h.query_start from (
  select 'transaction' as kind, extract(epoch from now() - a.xact_start)::float8 as age,
         coalesce(age(coalesce(a.backend_xmin, a.backend_xid)), 0)::bigint as xids, a.pid, a.application_name as name, a.usename::text as owner,
         a.state, a.query_start
  from pg_stat_activity a
  where a.xact_start is not null and a.pid <> pg_backend_pid() and a.backend_type = 'client backend' and a.datname = current_database()
  union all
  select 'prepared transaction', extract(epoch from now() - p.prepared)::float8, age(p.transaction)::bigint, 0, p.gid, p.owner::text, 'prepared', null
  from pg_prepared_xacts p where p.database = current_database()
  union all
  select 'replication slot', null, greatest(age(s.xmin), age(s.catalog_xmin))::bigint, coalesce(s.active_pid, 0), s.slot_name::text, '',
         case when s.active then 'active' else 'inactive' end, null
  from pg_replication_slots s where s.xmin is not null or s.catalog_xmin is not null
) h
order by h.age desc nulls last, h.xids desc limit 10;
