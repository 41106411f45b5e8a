-- Indexes of the hot tables: their size, and how much of it they would need for the rows there are. Reads system views only; sizes are
-- looked up on disk. An entry takes its header and its columns' average width (8 bytes where nothing is known), in steps of 8, and a
-- line pointer; pages are filled to 90 %. All live rows are counted for partial indexes too, so the surplus is rather told too small. leftover: what a
-- rebuild that was cut short left behind, while nobody builds on that table.
select i.relname::text as name, t.relname::text as "table", pg_relation_size(i.oid) as bytes,
       (16384 + greatest(s.n_live_tup, t.reltuples, 0) * (4 + 8 * ceil((8 + w.width) / 8.0)) / 0.9)::bigint as needed,
       not x.indisvalid and i.relname ~ '_cc(new|old)[0-9]*$'
         and not exists (select 1 from pg_stat_progress_create_index p where p.relid = t.oid) as leftover
from pg_class t
join pg_index x on x.indrelid = t.oid
join pg_class i on i.oid = x.indexrelid and i.relkind = 'i'
left join pg_stat_user_tables s on s.relid = t.oid
cross join lateral (
  select coalesce(sum(coalesce(st.avg_width, 8)), 8) as width
  from unnest(x.indkey::int2[]) as k (attnum)
  left join pg_attribute a on a.attrelid = t.oid and a.attnum = k.attnum
  left join pg_stats st on st.schemaname = 'tenure' and st.tablename = t.relname and st.attname = a.attname
) w
where t.relnamespace = 'tenure'::regnamespace and t.relkind = 'r'
  and (t.relname in ('job', 'idempotency', 'lease_grant', 'queue_count', 'replica', 'leader', 'worker', 'schedule', 'schedule_run', 'forward')
       or not x.indisvalid)
order by i.relname;
