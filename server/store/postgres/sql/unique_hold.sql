-- Locks the jobs that hold unique keys, have not been claimed and may be changed: until the transaction ends nobody takes a lease on them. $1 queue, $2 names,
-- which the caller has locked: of several transactions only one waits for the row of such a job. Answers the names whose holder is locked. Waits
-- for a claim that is under way, up to lock_timeout; one that is leased is left alone. Primary keys.
select i.name from unnest($2::text[]) as i (name)
cross join lateral (select k.job_id from tenure.unique_key k where k.queue_id = $1 and k.name = i.name limit 1) k
cross join lateral (select j.id from tenure.job j where j.id = k.job_id and j.queue_id = $1 and (j.state + 0) in (1, 2, 3) for no key update) j;
