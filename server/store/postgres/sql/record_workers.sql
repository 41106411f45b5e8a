-- $1 workers (sorted, distinct), $2 their queues, comma-separated.
insert into tenure.worker as w (worker, last_claim_at, queues)
select i.worker, now(), string_to_array(i.queues, ',') from unnest($1::text[], $2::text[]) as i (worker, queues) order by i.worker
on conflict (worker) do update set last_claim_at = excluded.last_claim_at, queues = excluded.queues;
