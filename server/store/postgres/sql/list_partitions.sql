-- Partitions by day, with the first day they hold (days since 1970-01-01 UTC), oldest first.
select p.relname::text as parent, c.relname::text as name, to_date(right(c.relname::text, 8), 'YYYYMMDD') - date '1970-01-01' as day,
       i.inhdetachpending as detaching, tenure.today() as today
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
join pg_class p on p.oid = i.inhparent
join pg_namespace n on n.oid = p.relnamespace
where n.nspname = 'tenure' and p.relname in ('history', 'dead_letter', 'payload')
order by p.relname, c.relname;
