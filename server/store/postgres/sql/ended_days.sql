-- The days that have history or dead letter partitions, newest first, up to $1.
select distinct to_date(right(c.relname::text, 8), 'YYYYMMDD') - date '1970-01-01' as day
from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
join pg_namespace n on n.oid = p.relnamespace
where n.nspname = 'tenure' and p.relname in ('history', 'dead_letter')
  and to_date(right(c.relname::text, 8), 'YYYYMMDD') - date '1970-01-01' <= least($1, tenure.today())
order by day desc;
