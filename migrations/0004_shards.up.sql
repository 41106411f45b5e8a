-- Leases by shard for background workers whose work is divided by queue. Makes new tables and a function, and takes no lock on anything
-- that exists; safe to run while older daemons serve. An older daemon leads the reaper and retention by tenure.leader meanwhile:
-- both may work at once, since each row that they write is locked and looked at again.

-- The shards of each worker, 0 to 1023, in ranges without gap or overlap; a range is held by one replica, or by nobody. The term of
-- each shard only grows, and no two holders of a shard have the same one. Ranges are split and put together again by whoever
-- holds them, or takes them, in one statement (apply_shards.sql).
create table tenure.shard_lease (
  worker text not null,
  first_shard int not null,
  last_shard int not null,
  replica_id int,
  holder text not null default '',
  term bigint not null default 0,
  since timestamptz,
  expires_at timestamptz not null default '-infinity',
  -- How often in a row the work of this shard has failed, and until when it rests.
  failures int not null default 0,
  retry_at timestamptz not null default '-infinity',
  last_error text not null default '',
  primary key (worker, first_shard),
  check (first_shard between 0 and last_shard and last_shard <= 1023)
) with (fillfactor = 50);

-- The replicas that run a worker by shard, and how they fare with it. The shards are divided among those whose row has not expired.
create table tenure.shard_member (
  worker text not null,
  replica_id int not null,
  holder text not null,
  expires_at timestamptz not null,
  last_success_at timestamptz,
  last_error text not null default '',
  runs bigint not null default 0,
  restarts bigint not null default 0,
  primary key (worker, replica_id)
) with (fillfactor = 50);

-- The shard that the work of a queue belongs to: the upper ten bits of a multiplication by 2^32 divided by the golden ratio, which spreads
-- numbers that follow one another. The same as ShardOf in server/store/shards.h.
create function tenure.shard_of(queue_id int) returns int language sql immutable parallel safe
  return (((queue_id::bigint * 2654435761) & 4294967295) >> 22)::int;
revoke all on function tenure.shard_of(int) from public;
