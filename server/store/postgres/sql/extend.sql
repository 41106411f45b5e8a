-- Moves the end of leases of one queue to now + duration, never earlier. Writes only when less than half of the duration is left
-- or progress was told; a HOT update, since no index holds what changes. $1 queue, $2 ids (sorted, distinct), $3 token numbers,
-- $4 secrets, $5 durations in microseconds (NULL: as granted), $6 progress, $7 progress message.
-- `limit 1` keeps the look at one id from being made a join with the whole table.
-- Answers the items whose token is current; what is not answered is locked by somebody, or its token is stale: resolve_live.sql.
with current as materialized (
  select i.ord, j.id, j.lease_until, coalesce(i.duration_us, j.lease_us) as duration_us, i.progress, i.message,
         i.progress is not null or i.message is not null
           or j.lease_until < now() + coalesce(i.duration_us, j.lease_us) / 2 * interval '1 microsecond' as due,
         i.number, i.secret
  from unnest($2::bigint[], $3::int[], $4::bigint[], $5::bigint[], $6::float8[], $7::text[])
       with ordinality as i (id, number, secret, duration_us, progress, message, ord)
  cross join lateral (
    select j.id, j.lease_until, j.lease_us from tenure.job j
    where j.id = i.id and j.queue_id = $1 and j.token = i.number and j.token_secret = i.secret and (j.state + 0) = 4 limit 1
  ) j
),
locked as materialized (
  select c.ord, j.id, c.duration_us, c.progress, c.message
  from current c
  cross join lateral (
    select j.id from tenure.job j
    where j.id = c.id and j.queue_id = $1 and j.token = c.number and j.token_secret = c.secret and (j.state + 0) = 4
    for no key update skip locked
  ) j
  where c.due
),
input as materialized (
  select array_agg(l.id order by l.id) as ids, array_agg(l.duration_us order by l.id) as durations,
         array_agg(l.progress order by l.id) as progress, array_agg(l.message order by l.id) as messages
  from locked l
),
extended as (
  update tenure.job as j
  set lease_until = greatest(j.lease_until, now() + (select i.durations from input i)[width_bucket(j.id, (select i.ids from input i))] * interval '1 microsecond'),
      progress = coalesce((select i.progress from input i)[width_bucket(j.id, (select i.ids from input i))], j.progress),
      progress_message = coalesce((select i.messages from input i)[width_bucket(j.id, (select i.ids from input i))], j.progress_message)
  where j.queue_id = $1 and j.id = any ((select i.ids from input i)::bigint[])
  returning j.id, j.lease_until
)
select e.id, e.lease_until, extract(epoch from e.lease_until - now())::float8 as remaining from extended e
union all
select c.id, c.lease_until, extract(epoch from c.lease_until - now())::float8 from current c where not c.due;
