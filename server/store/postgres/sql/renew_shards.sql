-- Takes part in a worker's shards for another lease, and renews what is held, each once a third of the lease has gone. $1 worker, $2
-- replica, $3 lease in microseconds. Waits for a fenced write of the same replica in progress (they hold the row FOR SHARE).
with made as (
  insert into tenure.shard_lease as l (worker, first_shard, last_shard)
  select $1, 0, 1023 where not exists (select 1 from tenure.shard_lease l where l.worker = $1)
  on conflict do nothing
),
joined as (
  insert into tenure.shard_member as m (worker, replica_id, holder, expires_at)
  select $1, r.id, r.name, now() + $3::bigint * interval '1 microsecond' from tenure.replica r
  where r.id = $2 and r.lease_until > now()
    and not exists (select 1 from tenure.shard_member m where m.worker = $1 and m.replica_id = $2
                      and m.expires_at > now() + $3::bigint * 2 / 3 * interval '1 microsecond')
  on conflict (worker, replica_id) do update set expires_at = excluded.expires_at
),
forgotten as (
  delete from tenure.shard_member as m where m.worker = $1 and m.expires_at < now() - interval '10 minutes'
)
update tenure.shard_lease as l set expires_at = now() + $3::bigint * interval '1 microsecond'
where l.worker = $1 and l.replica_id = $2 and l.expires_at > now()
  and l.expires_at <= now() + $3::bigint * 2 / 3 * interval '1 microsecond';
