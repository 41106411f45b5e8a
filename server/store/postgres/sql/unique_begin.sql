-- Makes the rows of unique keys that are not there. $1 queue, $2 names, sorted and distinct. Waits for another transaction that has made one of
-- them and not committed, up to lock_timeout. Primary key of tenure.unique_key.
insert into tenure.unique_key as k (queue_id, name)
select $1, i.name from unnest($2::text[]) with ordinality as i (name, ord) order by i.ord
on conflict (queue_id, name) do nothing;
