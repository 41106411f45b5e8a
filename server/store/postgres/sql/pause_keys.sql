-- Pauses keys of one queue: nothing that names them is admitted for so long. A pause is never shortened. $1 queue, $2 keys (sorted, distinct), $3 for how
-- long each, in microseconds.
insert into tenure.admission_pace as p (queue_id, key, paused_until)
select $1, k.key, now() + k.for_us * interval '1 microsecond' from unnest($2::text[], $3::bigint[]) as k (key, for_us) order by k.key
on conflict (queue_id, key) do update set paused_until = greatest(p.paused_until, excluded.paused_until);
