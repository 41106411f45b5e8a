-- Days that a target has still to take. $1 target, $2 how many days they must be over.
select p.parent, c.relname::text as name, to_date(substring(c.relname::text from '[0-9]{8}$'), 'YYYYMMDD') - date '1970-01-01' as day
from (values ('history'), ('dead_letter')) as p (parent)
join pg_namespace n on n.nspname = 'tenure'
join pg_class c on c.relnamespace = n.oid and c.relkind = 'r' and c.relname::text ~ ('^' || p.parent || '_[0-9]{8}$')
where to_date(substring(c.relname::text from '[0-9]{8}$'), 'YYYYMMDD') - date '1970-01-01' < tenure.today() - $2::int
  and not exists (select 1 from tenure.target_export e where e.target_id = $1 and e.partition = c.relname::text)
order by day, c.relname;
