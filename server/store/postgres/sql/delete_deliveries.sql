-- Some of a target's deliveries go, before it does. $1 name, $2 limit of each kind. Answers how many went.
with target as materialized (
  select t.id from tenure.target t where t.name = $1
),
chosen as materialized (
  select d.id from target t cross join lateral (
    select d.id from tenure.delivery d where d.target_id = t.id and not d.dead order by d.due_at, d.id limit $2) d
  union all
  select d.id from target t cross join lateral (
    select d.id from tenure.delivery d where d.target_id = t.id and d.dead order by d.target_id, d.id limit $2) d
),
gone as (
  delete from tenure.delivery d
  where d.target_id = any (array(select t.id from target t)) and d.id = any (array(select c.id from chosen c)) returning 1
)
select count(*) as gone from gone;
