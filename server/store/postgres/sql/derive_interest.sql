-- Which ends of jobs are told, from all targets. The caller has locked the table in an earlier statement, so that this one sees what whoever was
-- before has committed; readers go on.
with wanted as materialized (
  select w.queue_id, bit_or(t.events) as events
  from tenure.target t
  cross join lateral (select unnest(t.queue_ids) as queue_id union all select 0 where t.queue_ids = '{}') w
  where t.events <> 0 group by w.queue_id
),
gone as (
  delete from tenure.outbox_interest i where i.queue_id <> all (array(select w.queue_id from wanted w))
)
insert into tenure.outbox_interest as i (queue_id, events) select w.queue_id, w.events from wanted w
on conflict (queue_id) do update set events = excluded.events where i.events <> excluded.events;
