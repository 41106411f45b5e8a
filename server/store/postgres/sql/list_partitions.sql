-- Tables by day, with the first day they hold (days since 1970-01-01 UTC), oldest first: partitions, and what was taken out and not dropped yet.
-- `held`: an export target has not taken it yet.
select p.parent, c.relname::text as name, to_date(substring(c.relname::text from '[0-9]{8}$'), 'YYYYMMDD') - date '1970-01-01' as day,
       coalesce(i.inhdetachpending, false) as detaching, i.inhrelid is not null as attached, tenure.today() as today,
       p.parent <> 'payload' and exists (
         select 1 from tenure.target t
         where t.purpose = 3 and not exists (select 1 from tenure.target_export e where e.target_id = t.id and e.partition = c.relname::text)
       ) as held
from (values ('history'), ('dead_letter'), ('payload')) as p (parent)
join pg_namespace n on n.nspname = 'tenure'
join pg_class c on c.relnamespace = n.oid and c.relkind = 'r' and c.relname::text ~ ('^' || p.parent || '_[0-9]{8}$')
left join pg_inherits i on i.inhrelid = c.oid
order by p.parent, c.relname;
