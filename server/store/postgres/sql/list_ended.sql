-- A page of ended jobs of one day, newest first by id. $15 the day; $1..$14 as in list_live.sql (update time is the end). Reads one
-- partition each of history and the dead letters by primary key.
with scanned as materialized (
  select h.* from (
    (select h.* from tenure.history h where h.ended_on = $15::date and h.id < $1 order by h.id desc limit $2)
    union all
    (select h.* from tenure.dead_letter h where h.ended_on = $15::date and h.id < $1 order by h.id desc limit $2)
  ) h order by h.id desc limit $2
),
page as materialized (
  select s.* from scanned s
  where ($3::int is null or s.queue_id = $3) and ($4::text[] is null or s.kind = any ($4)) and s.state = any ($5::smallint[])
    and ($6::text is null or s.headers @> $6::jsonb) and $7::text is null
    and ($8::timestamptz is null or s.created_at >= $8) and ($9::timestamptz is null or s.created_at < $9)
    and ($10::timestamptz is null or s.ended_at >= $10) and ($11::timestamptz is null or s.ended_at < $11)
    and ($12::timestamptz is null or s.due_at >= $12) and ($13::timestamptz is null or s.due_at < $13)
  order by s.id desc limit $14
)
select 0 as row_sort, null::bigint as scanned, null::bigint as lowest, p.* from page p
union all
select 1, count(*), min(s.id), (null::tenure.history).* from scanned s;
