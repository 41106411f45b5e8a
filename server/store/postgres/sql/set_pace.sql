-- Remembers what the rates of keys of one queue have let pass ('' is the queue). $1 queue, $2 keys (sorted, distinct), $3 microseconds that the
-- starts of each took. The caller holds the queue's turn.
insert into tenure.admission_pace as p (queue_id, key, next_at)
select $1, k.key, now() + k.took_us * interval '1 microsecond' from unnest($2::text[], $3::bigint[]) as k (key, took_us) order by k.key
on conflict (queue_id, key) do update set next_at = greatest(p.next_at, now()) + (excluded.next_at - now());
