-- A page of a target's dead deliveries. $1 name, $2 ids after this, $3 limit. Reads the index delivery_dead. A row without an id: there is none after.
select d.* from tenure.target t
left join lateral (
  select d.* from tenure.delivery d where d.target_id = t.id and d.dead and d.id > $2 order by d.target_id, d.id limit $3
) d on true
where t.name = $1 order by d.id;
