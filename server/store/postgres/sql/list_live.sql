-- A page of live jobs, newest first, by primary key: $1 look below this id, $2 scan at most so many rows. Filters, NULL where not
-- asked for: $3 queue, $4 kinds, $5 states, $6 headers, $7 holder, $8/$9 created, $10/$11 updated, $12/$13 due, $14 page size.
-- The last row scanned comes as row_sort 1 so that the next page begins below it.
with scanned as materialized (
  select j.* from tenure.job j where j.id < $1 order by j.id desc limit $2
),
page as materialized (
  select s.* from scanned s
  where ($3::int is null or s.queue_id = $3) and ($4::text[] is null or s.kind = any ($4)) and s.state = any ($5::smallint[])
    and ($6::text is null or s.headers @> $6::jsonb) and ($7::text is null or (s.worker = $7 and s.state = 4))
    and ($8::timestamptz is null or s.created_at >= $8) and ($9::timestamptz is null or s.created_at < $9)
    and ($10::timestamptz is null or s.updated_at >= $10) and ($11::timestamptz is null or s.updated_at < $11)
    and ($12::timestamptz is null or s.due_at >= $12) and ($13::timestamptz is null or s.due_at < $13)
  order by s.id desc limit $14
)
select 0 as row_sort, null::bigint as scanned, null::bigint as lowest, p.* from page p
union all
select 1, count(*), min(s.id), (null::tenure.job).* from scanned s;
