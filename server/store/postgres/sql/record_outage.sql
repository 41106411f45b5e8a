-- The database could not be reached for so long, until now. $1 length in microseconds. One that follows upon another within half a minute
-- is the same one going on: a lease that ran out in the first part, and still waits for its worker, is not ended by the second.
with latest as materialized (
  select o.id from tenure.outage o order by o.id desc limit 1
),
joined as (
  update tenure.outage as o set began_at = least(o.began_at, now() - $1::bigint * interval '1 microsecond'), ended_at = now()
  where o.id = (select l.id from latest l) and o.ended_at >= now() - $1::bigint * interval '1 microsecond' - interval '30 seconds'
  returning 1
)
insert into tenure.outage as o (began_at, ended_at)
select now() - $1::bigint * interval '1 microsecond', now() where not exists (select 1 from joined);
