-- The next events of a target's window, in the order (xid, id). $1 in-progress xids of the snapshot up to which it has taken everything, $2 its xmax, $3 the
-- snapshot up to which it is being served, $4, $5 the last event taken, $6 limit, $7 queues (empty: all), $8 events as in tenure.target; $9, $10 the last event of a planned
-- page, or NULL. Two ranges of the index on (xid, id), neither of which begins before the place. Row sorts: 0 an event for the target; 1 how many were read, and the last.
with scanned as materialized (
  select e.* from (
    (select o.* from unnest($1::text::xid8[]) as x (xid)
     cross join lateral (
       select o.* from tenure.outbox o
       where o.xid = x.xid and o.id > case when x.xid = $4::text::xid8 then $5::bigint else 0 end
         and pg_visible_in_snapshot(o.xid, $3::text::pg_snapshot)
       order by o.id limit $6
     ) o
     where x.xid >= $4::text::xid8 order by o.xid, o.id limit $6)
    union all
    (select o.* from tenure.outbox o
     where o.xid >= $2::text::xid8 and o.xid < pg_snapshot_xmax($3::text::pg_snapshot) and (o.xid, o.id) > ($4::text::xid8, $5::bigint)
       and pg_visible_in_snapshot(o.xid, $3::text::pg_snapshot)
     order by o.xid, o.id limit $6)
  ) e
  where $9::text is null or (e.xid, e.id) <= ($9::text::xid8, $10::bigint)
  order by e.xid, e.id limit $6
)
select 0 as row_sort, s.xid::text as xid, s.id, null::bigint as scanned, q.name as queue, s.queue_id, s.state, s.job_id, s.job_day, s.kind, s.tenant, s.attempt,
       s.failures, s.crashes, s.created_at, s.started_at, s.ended_at, s.error_message, s.error_type, s.effect_key, s.retry_of, s.headers,
       extract(epoch from now() - s.ended_at)::float8 as age
from scanned s join tenure.queue q on q.id = s.queue_id
where (cardinality($7::int[]) = 0 or s.queue_id = any ($7)) and $8::smallint & (1 << (s.state - 6)) <> 0
union all
(select 1, s.xid::text, s.id, (select count(*) from scanned), null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
 from scanned s order by s.xid desc, s.id desc limit 1)
;
