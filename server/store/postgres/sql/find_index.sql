-- An index of the schema by name: is it valid, and does anybody build on its table now? $1 name. Reads the catalog.
select x.indisvalid as valid, i.relname ~ '_cc(new|old)[0-9]*$' as leftover, quote_ident(i.relname) as quoted,
       exists (select 1 from pg_stat_progress_create_index p where p.relid = x.indrelid) as building
from pg_class i join pg_index x on x.indexrelid = i.oid
where i.relnamespace = 'tenure'::regnamespace and i.relname = $1;
