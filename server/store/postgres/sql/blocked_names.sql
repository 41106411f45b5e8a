-- A page of what jobs wait for: $3 of which sort: 1 to 4 keys in that place, 5 groups, 6 queues with a gate of their own, and (name 'o')
-- those that had one when somebody began a transaction that has left jobs at it. $1, $2 queue and name
-- after which the page begins (below the first: 0 and ''), $4 at most so many names. For the net under admission: it does not ask whether one
-- of them could pass. Locks nothing. Steps from name to name through job_key_1 to job_key_4, job_group and job_gate; `waiting` false: nobody
-- waits for it just now, or (a group) one of it has passed, and it only moves the page on. (Not `not exists`: of
-- that the planner may make a table of all groups of which one has passed.)
with recursive
key1 as (
  (select j.queue_id, j.concurrency_keys[1] as name from tenure.job j
   where $3::int = 1 and j.concurrency_keys[1] is not null and j.gate is not null and (j.queue_id, j.concurrency_keys[1]) > ($1::int, $2::text)
   order by j.queue_id, j.concurrency_keys[1] limit 1)
  union all
  select n.* from key1 p cross join lateral (
    select j.queue_id, j.concurrency_keys[1] from tenure.job j
    where j.concurrency_keys[1] is not null and j.gate is not null and (j.queue_id, j.concurrency_keys[1]) > (p.queue_id, p.name)
    order by j.queue_id, j.concurrency_keys[1] limit 1) n
),
key2 as (
  (select j.queue_id, j.concurrency_keys[2] as name from tenure.job j
   where $3::int = 2 and j.concurrency_keys[2] is not null and j.gate is not null and (j.queue_id, j.concurrency_keys[2]) > ($1::int, $2::text)
   order by j.queue_id, j.concurrency_keys[2] limit 1)
  union all
  select n.* from key2 p cross join lateral (
    select j.queue_id, j.concurrency_keys[2] from tenure.job j
    where j.concurrency_keys[2] is not null and j.gate is not null and (j.queue_id, j.concurrency_keys[2]) > (p.queue_id, p.name)
    order by j.queue_id, j.concurrency_keys[2] limit 1) n
),
key3 as (
  (select j.queue_id, j.concurrency_keys[3] as name from tenure.job j
   where $3::int = 3 and j.concurrency_keys[3] is not null and j.gate is not null and (j.queue_id, j.concurrency_keys[3]) > ($1::int, $2::text)
   order by j.queue_id, j.concurrency_keys[3] limit 1)
  union all
  select n.* from key3 p cross join lateral (
    select j.queue_id, j.concurrency_keys[3] from tenure.job j
    where j.concurrency_keys[3] is not null and j.gate is not null and (j.queue_id, j.concurrency_keys[3]) > (p.queue_id, p.name)
    order by j.queue_id, j.concurrency_keys[3] limit 1) n
),
key4 as (
  (select j.queue_id, j.concurrency_keys[4] as name from tenure.job j
   where $3::int = 4 and j.concurrency_keys[4] is not null and j.gate is not null and (j.queue_id, j.concurrency_keys[4]) > ($1::int, $2::text)
   order by j.queue_id, j.concurrency_keys[4] limit 1)
  union all
  select n.* from key4 p cross join lateral (
    select j.queue_id, j.concurrency_keys[4] from tenure.job j
    where j.concurrency_keys[4] is not null and j.gate is not null and (j.queue_id, j.concurrency_keys[4]) > (p.queue_id, p.name)
    order by j.queue_id, j.concurrency_keys[4] limit 1) n
),
grp as (
  (select j.queue_id, j.group_key as name from tenure.job j
   where $3 = 5 and j.group_key is not null and (j.queue_id, j.group_key) > ($1, $2) order by j.queue_id, j.group_key limit 1)
  union all
  select n.* from grp p cross join lateral (
    select j.queue_id, j.group_key from tenure.job j
    where j.group_key is not null and (j.queue_id, j.group_key) > (p.queue_id, p.name) order by j.queue_id, j.group_key limit 1) n
),
at_gate as (
  (select j.queue_id from tenure.job j where $3 = 6 and j.gate = 6 and j.queue_id > $1 order by j.queue_id limit 1)
  union all
  select n.* from at_gate p cross join lateral (
    select j.queue_id from tenure.job j where j.gate = 6 and j.queue_id > p.queue_id order by j.queue_id limit 1) n
)
(select n.queue_id, n.name, exists (select 1 from tenure.job j where j.queue_id = n.queue_id and j.concurrency_keys[1] = n.name and j.gate = 2) as waiting
 from key1 n limit $4)
union all
(select n.queue_id, n.name, exists (select 1 from tenure.job j where j.queue_id = n.queue_id and j.concurrency_keys[2] = n.name and j.gate = 3) as waiting
 from key2 n limit $4)
union all
(select n.queue_id, n.name, exists (select 1 from tenure.job j where j.queue_id = n.queue_id and j.concurrency_keys[3] = n.name and j.gate = 4) as waiting
 from key3 n limit $4)
union all
(select n.queue_id, n.name, exists (select 1 from tenure.job j where j.queue_id = n.queue_id and j.concurrency_keys[4] = n.name and j.gate = 5) as waiting
 from key4 n limit $4)
union all
(select n.queue_id, n.name, (select true from tenure.job j where j.queue_id = n.queue_id and coalesce(j.group_key, '') = n.name and coalesce(j.group_key, '') > '' and j.gate <> 1
                            limit 1) is null
 from grp n limit $4)
union all
(select x.queue_id, x.name, true from (
   (select q.id as queue_id, '' as name from tenure.queue q where $3 = 6 and q.gated and q.id > $1 order by q.id limit $4)
   union all
   (select a.queue_id, 'o' from (select a.queue_id from at_gate a limit $4) a join tenure.queue q on q.id = a.queue_id and not q.gated)
 ) x order by x.queue_id limit $4);
