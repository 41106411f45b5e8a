-- Where jobs are now that were moved, over any number of moves. $1 ids, $2 their queues, $3 their days of enqueue. Answers, for each of them that was moved, its place
-- (from 1) in $1 and the job that it became last. A link names a job that was made with it, so no chain leads back. Locks nothing. Primary key of tenure.forward,
-- once for each hop.
with recursive hop as (
  select i.ord, 1 as hops, f.to_job_id, f.to_queue_id, f.to_job_day
  from unnest($1::bigint[], $2::int[], $3::int[]) with ordinality as i (id, queue_id, day, ord)
  cross join lateral (
    select f.to_job_id, f.to_queue_id, f.to_job_day from tenure.forward f
    where f.job_id = i.id and f.queue_id = i.queue_id and f.job_day = i.day limit 1
  ) f
  union all
  select h.ord, h.hops + 1, f.to_job_id, f.to_queue_id, f.to_job_day
  from hop h
  cross join lateral (
    select f.to_job_id, f.to_queue_id, f.to_job_day from tenure.forward f
    where f.job_id = h.to_job_id and f.queue_id = h.to_queue_id and f.job_day = h.to_job_day limit 1
  ) f
)
select distinct on (h.ord) h.ord, h.to_queue_id, h.to_job_day, h.to_job_id from hop h order by h.ord, h.hops desc;
