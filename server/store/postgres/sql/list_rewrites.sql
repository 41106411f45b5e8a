-- How far rewrites are, in the order of $1, their names. By primary key.
select n.name, coalesce(r.rows_read, 0) as rows_read, coalesce(r.rows_rewritten, 0) as rows_rewritten, coalesce(r.done, false) as done,
       coalesce(r.last_error, '') as last_error
from unnest($1::text[]) with ordinality as n (name, ord) left join tenure.rewrite r on r.name = n.name order by n.ord;
