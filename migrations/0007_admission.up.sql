-- Admission: concurrency keys, groups, limits. Adds columns without rewriting anything (ACCESS EXCLUSIVE on tenure.job, tenure.queue,
-- tenure.history, tenure.dead_letter and tenure.event for a moment: the migrator's lock waits behind running transactions, so run it when none is
-- long). The new indexes of tenure.job are partial and find nothing to hold yet; building them reads the table of live jobs once and holds
-- up its writers meanwhile. Daemons of an older version go on, but make jobs with keys ready without asking: replace all of them before keys,
-- groups and limits are used.

-- Whether all jobs of the queue pass its own gate (it has a limit or a rate of its own, or its tenants take turns).
alter table tenure.queue add column gated boolean not null default false;
-- Whether the tenants of the queue take turns by weight at its gate.
alter table tenure.queue add column fair_tenants boolean not null default false;
-- A job that is ready gains one priority for each such time since it was due. NULL: none.
alter table tenure.queue add column priority_ageing_us bigint;
-- Whether a group passes over a job of it that waits for its retry; else that job holds its group.
alter table tenure.queue add column skip_retrying boolean not null default false;
create index queue_gated on tenure.queue (id) where gated;

alter table tenure.job
  -- Sorted, distinct, at most 4. NULL: none.
  add column concurrency_keys text[] collate "C",
  -- Strict order: one of the group at a time, in the order of the ids.
  add column group_key text collate "C",
  -- Where it stands on its way to ready; it takes the gates in this order, and holds the slots of those behind it. NULL: it is not
  -- subject to admission, or not due. 0: admitted (ready or leased). Else blocked, and waits for: 1 its group; 2 to 5 its first to fourth
  -- key; 6 its queue. Only what admits, retries or schedules a job changes it: no claim and no extend, since it is in indexes.
  add column gate smallint;
alter table tenure.history add column concurrency_keys text[] collate "C", add column group_key text collate "C";
alter table tenure.dead_letter add column concurrency_keys text[] collate "C", add column group_key text collate "C";

-- One each for the first to fourth key: who waits for the key, in their order, and who holds it.
create index job_key_1 on tenure.job (queue_id, (concurrency_keys[1]), gate, priority desc, id)
  where gate is not null and concurrency_keys[1] is not null;
create index job_key_2 on tenure.job (queue_id, (concurrency_keys[2]), gate, priority desc, id)
  where gate is not null and concurrency_keys[2] is not null;
create index job_key_3 on tenure.job (queue_id, (concurrency_keys[3]), gate, priority desc, id)
  where gate is not null and concurrency_keys[3] is not null;
create index job_key_4 on tenure.job (queue_id, (concurrency_keys[4]), gate, priority desc, id)
  where gate is not null and concurrency_keys[4] is not null;
-- The jobs of a group in their order, also those that are not due; and the one of it that has passed. (id + 0: ordered so, only this index
-- serves; ordered by id the planner may walk the primary key from its beginning to find one of a group. coalesce: of two indexes that both serve
-- a statement the planner takes the less deep one, and with the statistics of a new table that is the wrong one at some size. So no statement is
-- served by two: each asks in the words of its index.)
create index job_group on tenure.job (queue_id, group_key, (id + 0)) where group_key is not null;
create index job_group_passed on tenure.job (queue_id, (coalesce(group_key, ''))) where gate <> 1 and coalesce(group_key, '') > '';
-- Who waits for the queue.
create index job_gate on tenure.job (queue_id, priority desc, id) where gate = 6;
-- The same by tenant, for a queue whose tenants take turns. ('' is the tenant of jobs without one. gate + 0: as above.)
create index job_tenant_gate on tenure.job (queue_id, (coalesce(tenant, '') collate "C"), priority desc, id) where (gate + 0) = 6;

-- The first gate of a job that is due; NULL: it is ready at once.
create function tenure.first_gate(group_key text, concurrency_keys text[], gated boolean) returns smallint
  language sql immutable parallel safe
  return (case when group_key is not null then 1 when concurrency_keys is not null then 2 when gated then 6 end)::smallint;

-- What an operator set.
create table tenure.admission_limit (
  queue_id int not null,
  -- 1: this key; 2: keys that begin so and have no limit of their own (the longest beginning counts); 3: the queue (key ''); 4: the
  -- weight of a tenant (key).
  scope smallint not null,
  key text collate "C" not null,
  -- At most so many admitted at once. NULL: any number.
  max_leased int,
  -- At most one start per so many microseconds, and so many at once after a pause. NULL: at any rate.
  rate_interval_us bigint,
  rate_burst int,
  -- Of a tenant: how many turns it gets where one without a weight gets one.
  weight int,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (queue_id, scope, key)
);

-- What rates and pauses remember; a row whose times are past says nothing. Key '' is the queue itself.
create table tenure.admission_pace (
  queue_id int not null,
  key text collate "C" not null,
  -- Of the rate (GCRA): when the next start would be on time.
  next_at timestamptz not null default 'epoch',
  paused_until timestamptz not null default 'epoch',
  primary key (queue_id, key)
) with (fillfactor = 50);

-- One row per queue that admits. Only locked, never updated: who holds it admits.
create table tenure.admission_turn (queue_id int primary key);
-- Of a queue whose tenants take turns (start-time fair queueing): the virtual time at which the next job of a tenant may start, if its turn
-- is not before that of others. A row that is not ahead of the queue's virtual time says nothing.
create table tenure.fair_share (
  queue_id int not null,
  tenant text collate "C" not null,
  next_start bigint not null,
  primary key (queue_id, tenant)
) with (fillfactor = 50);
-- How far such a queue has come.
create table tenure.fair_clock (
  queue_id int primary key,
  -- The virtual start of the first job that is ready; only grows.
  virtual_time bigint not null,
  -- The greatest virtual start that was given out.
  last_start bigint not null,
  -- With more tenants in line than one look takes: after which one the next look begins.
  resume_after text collate "C"
) with (fillfactor = 50);
-- Queues that got a gate of their own, or whose tenants began to take turns, while jobs were ready: the worker admission sends those
-- back to the gate, a batch at a time, from the end of the queue towards its beginning. The queue's turn guards a row.
create table tenure.admission_recall (
  queue_id int primary key,
  -- The transaction that changed the queue: one that was at work then may not know, and make jobs ready after that.
  began xid8 not null default pg_current_xact_id(),
  -- When the queue changed, by whoever had its turn: what became ready before that has not passed the gate as it is now.
  since timestamptz not null default clock_timestamp(),
  -- How far this pass has come, and how many it has sent back, or passed over since somebody had locked them. NULL: it begins.
  priority smallint,
  rank bigint,
  id bigint,
  found bigint not null default 0,
  -- Whether the pass began once nobody could be at work who did not know. If it finds nothing, the recall is over.
  last boolean not null default false
) with (fillfactor = 50);
-- The rank of what is admitted together: beyond all that was admitted before.
create sequence tenure.admission_rank as bigint;

-- Type 5: keys ('k' and the key), groups ('g' and the group) or the queue ('q') that are to be looked at, told by an application's transaction.
alter table tenure.event add column admit text[] collate "C";

-- Uniqueness -------------------------------------------------------------------------------------------------------------
-- The unique key of a job with its scope: 'q:' and the key, or 'k:', its kind, a blank and the key. NULL: none.
alter table tenure.job add column unique_name text collate "C";
alter table tenure.history add column unique_name text collate "C";
alter table tenure.dead_letter add column unique_name text collate "C";

-- Who holds a unique key: the job that was last accepted with it. Whether it counts is read from its row when it is asked, so nothing is
-- written here when a job ends. Who enqueues with a key locks its row first and looks in a later statement.
create table tenure.unique_key (
  queue_id int not null,
  name text collate "C" not null,
  job_id bigint not null default 0,
  job_day int not null default 0,
  -- It counts until then also if it has ended.
  held_until timestamptz not null default 'epoch',
  primary key (queue_id, name)
) with (fillfactor = 70);

-- Whether the enqueue that used the key was answered with a job that held its unique key.
alter table tenure.idempotency add column existing boolean not null default false;

create function tenure.unique_name(key text, by_kind boolean, kind text) returns text language sql immutable parallel safe
  return case when by_kind then 'k:' || kind || ' ' || key else 'q:' || key end;

-- Dependencies -----------------------------------------------------------------------------------------------------------
-- True: some job may wait for this one, so what ends it says so (among what is to be looked at: 'w' and its id). NULL: none does. A job that waits
-- for others is blocked (2) without a gate.
alter table tenure.job add column awaited boolean;

-- What jobs wait for. Rows of a job go when it waits no more.
create table tenure.dependency (
  awaited_id bigint not null,
  awaited_queue_id int not null,
  awaited_day int not null,
  job_id bigint not null,
  queue_id int not null,
  -- Any end will do; else it has to complete.
  any_end boolean not null,
  -- One that did not complete releases the job; else it cancels it.
  release boolean not null,
  -- The state in which it ended, once that has been counted; 0: nobody knows any more.
  outcome smallint,
  primary key (awaited_id, job_id)
) with (fillfactor = 70);
-- (job_id + 0: only who asks so is served by it, and nobody else walks it for its order.)
create index dependency_job on tenure.dependency ((job_id + 0));
