-- How many ready jobs stand before a ready one, counted up to a bound; and whether anybody has asked for jobs of its queue lately. $1 queue, $2 its
-- priority, $3 its rank, $4 its id, $5 the bound. Leased jobs in the index are passed over. Index job_ready.
select (select count(*) from (
          (select 1 from tenure.job j where j.queue_id = $1 and j.place = 3 and j.priority = $2::smallint and j.rank >= 0
             and (j.rank, j.id) < ($3::bigint, $4::bigint) and (j.state + 0) = 3 limit $5)
          union all
          (select 1 from tenure.job j where j.queue_id = $1 and j.place = 3 and j.priority > $2 and j.rank >= 0 and (j.state + 0) = 3 limit $5)
        ) c) as ahead,
       exists (select 1 from tenure.worker w join tenure.queue q on q.id = $1
               where w.last_claim_at > now() - interval '2 minutes' and w.queues @> array[q.name]) as asked;
