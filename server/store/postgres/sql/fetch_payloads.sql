-- Large payloads of one day, by primary key, one at a time (`limit 1`). $1 day, $2 ids.
select p.id, p.data from unnest($2::bigint[]) as i (id)
cross join lateral (select p.id, p.data from tenure.payload p where p.id = i.id and p.day = $1 limit 1) p;
