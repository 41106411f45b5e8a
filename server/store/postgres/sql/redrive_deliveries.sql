-- Makes dead deliveries of a target due again. $1 name, $2 ids (empty: all), $3 limit. Reads the index delivery_dead. No row: there is no such target.
with target as materialized (
  select t.id from tenure.target t where t.name = $1
),
chosen as materialized (
  select d.id from target t
  cross join lateral (
    select d.id from tenure.delivery d
    where d.target_id = t.id and d.dead and (cardinality($2::bigint[]) = 0 or d.id = any ($2)) order by d.target_id, d.id limit $3 for update skip locked
  ) d
),
redriven as (
  update tenure.delivery as d set dead = false, attempts = 0, due_at = now()
  where d.target_id = any (array(select t.id from target t)) and d.id = any (array(select c.id from chosen c)) returning 1
)
select (select count(*) from redriven) as redriven from target;
