-- Takes a background worker's leader lease if nobody holds it. $1 worker, $2 replica, $3 lease in microseconds. The term only grows. No
-- row: another replica holds it. Waits for a led write in progress (they hold the row FOR SHARE).
insert into tenure.leader as l (worker, replica_id, holder, term, since, expires_at)
select $1, r.id, r.name, 1, now(), now() + $3::bigint * interval '1 microsecond' from tenure.replica r where r.id = $2
on conflict (worker) do update
  set replica_id = excluded.replica_id, holder = excluded.holder, term = l.term + 1, since = now(), expires_at = excluded.expires_at, runs = 0
  where l.expires_at <= now()
returning l.term;
