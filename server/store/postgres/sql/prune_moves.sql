-- Forgets links, moves that ended, and what standing moves had left over, past their age. Belongs to no queue, and so to shard 0. $1 worker, $2 first shard and $3 term of the
-- fence, $4 age in microseconds, $5 limit of each. Reads the indexes forward_moved and dead_letter_due_ended.
-- Rows of tenure.dead_letter_due are never updated, so that where one lies names it.
with in_term as materialized (
  select true as yes from tenure.shard_lease l
  where l.worker = $1 and l.first_shard = $2 and l.first_shard = 0 and l.term = $3 and l.replica_id is not null for share
),
old as materialized (
  select f.job_id from tenure.forward f
  where f.moved_at < now() - $4::bigint * interval '1 microsecond' and exists (select 1 from in_term)
  order by f.moved_at limit $5
),
links as (
  delete from tenure.forward as f where f.job_id = any (array(select o.job_id from old o)) returning 1
),
left_over as (
  delete from tenure.dead_letter_due as d where d.ctid = any (array(
    select n.ctid from tenure.dead_letter_due n
    where n.ended_on < ((now() - $4::bigint * interval '1 microsecond') at time zone 'utc')::date and exists (select 1 from in_term)
    order by n.ended_on limit $5))
),
moves as (
  delete from tenure.move as m where m.id = any (array(
    select n.id from tenure.move n
    where n.state in (3, 4) and n.ended_at < now() - $4::bigint * interval '1 microsecond' and exists (select 1 from in_term)
    order by n.id limit $5))
)
select count(*) as links from links;
