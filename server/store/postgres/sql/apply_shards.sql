-- Replaces ranges of a worker by others that cover the same shards, if they still are what they were. $1 worker, $2 replica that
-- writes, $3 lease in microseconds; the ranges to remove, in order: $4 first shards, $5 last ones, $6 terms, $7 replicas (0: nobody's);
-- what comes in their place: $8 first shards, $9 last ones, $10 terms, $11 replicas, $12 since, $13 failures, $14 times of rest, $15 errors.
-- Only what is this replica's, nobody's, or has run out can be removed. Locks those rows in order, by primary key, and so waits for fenced
-- writes in progress. Answers how many were removed: all, or none.
with locked as materialized (
  select l.first_shard from unnest($4::int[], $5::int[], $6::bigint[], $7::int[]) as i (first_shard, last_shard, term, replica_id)
  cross join lateral (
    select l.first_shard from tenure.shard_lease l
    where l.worker = $1 and l.first_shard = i.first_shard and l.last_shard = i.last_shard and l.term = i.term
      and coalesce(l.replica_id, 0) = i.replica_id and (coalesce(l.replica_id, 0) in (0, $2) or l.expires_at <= now())
    for update
  ) l
),
removed as (
  delete from tenure.shard_lease as l
  where l.worker = $1 and l.first_shard = any (array(select k.first_shard from locked k))
    and (select count(*) from locked) = cardinality($4::int[])
  returning 1
),
added as (
  insert into tenure.shard_lease as l (worker, first_shard, last_shard, term, replica_id, holder, since, expires_at, failures, retry_at, last_error)
  select $1, i.first_shard, i.last_shard, i.term, nullif(i.replica_id, 0), coalesce(r.name, ''), case when i.replica_id <> 0 then i.since end,
         case when i.replica_id <> 0 then now() + $3::bigint * interval '1 microsecond' else '-infinity' end,
         i.failures, i.retry_at, i.last_error
  from unnest($8::int[], $9::int[], $10::bigint[], $11::int[], $12::timestamptz[], $13::int[], $14::timestamptz[], $15::text[])
    as i (first_shard, last_shard, term, replica_id, since, failures, retry_at, last_error)
  left join tenure.replica r on r.id = i.replica_id
  where (select count(*) from removed) = cardinality($4::int[])
)
select count(*) as removed from removed;
