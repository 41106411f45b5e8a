-- Targets: where the events of jobs, and copies of jobs, go (webhooks, SQS, directories, S3-compatible buckets, another Tenure), and the outbox from
-- which they are served. Makes new tables. Safe to run while older daemons serve:
-- jobs that they end have no events, so make targets when no older daemon runs any more. A daemon of this version refuses an older schema.

create table tenure.target (
  id bigint generated always as identity primary key,
  name text collate "C" not null unique,
  -- Grows with every change by its owner.
  version bigint not null default 1,
  -- 1 notify, 2 event-log, 3 export, 4 inventory, 5 relay: the background worker that serves it.
  purpose smallint not null,
  url text not null,
  -- Of SQS and S3; empty: from the URL or the daemon's environment.
  region text not null default '',
  -- Of S3-compatible stores; empty: Amazon's.
  endpoint text not null default '',
  -- Empty: all queues, those to come too.
  queue_ids int[] not null default '{}',
  -- Which ends of jobs: 1 completed, 2 discarded, 4 cancelled, 8 expired, added up. 0: it takes no events.
  events smallint not null default 0,
  -- How often, or how long to gather; NULL: the purpose's default.
  interval_us bigint,
  -- Of inventory: a cron expression, instead of an interval, and its time zone; empty: none, and UTC.
  cron text not null default '',
  time_zone text not null default '',
  -- Of export: days that a partition must be over.
  min_age_days int,
  paused boolean not null default false,
  -- Signs what is sent. Never leaves the database but to the worker.
  secret text not null default '',
  description text not null default '',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);

-- How far a target has been served: one row each, written by the worker in its term. Apart from what its owner decides, so that
-- neither waits for the other.
create table tenure.target_state (
  target_id bigint primary key,
  -- Every event that is visible in it was taken.
  done pg_snapshot not null default pg_current_snapshot(),
  -- The window that is being taken: what is visible in it and was not in done. NULL: none.
  until pg_snapshot,
  -- Within the window, in the order (xid, id): the last event that was taken.
  at_xid xid8 not null default '0',
  at_id bigint not null default 0,
  -- The last event of the page whose object is being written, and how many events the page has: fixed before anything is written, so that whoever
  -- goes on writes the same object under the same name. NULL: none.
  plan_xid xid8,
  plan_id bigint,
  plan_count int,
  -- With which of the target's settings it was planned.
  plan_queue_ids int[],
  plan_events smallint,
  -- Events taken since the target was made: the sequence number of the next one, less one.
  taken bigint not null default 0,
  -- When the next run is due (inventory).
  next_at timestamptz,
  last_success_at timestamptz,
  last_error_at timestamptz,
  last_error text not null default ''
) with (fillfactor = 50);

-- Which ends of jobs are told at all, per queue (0: of every queue), as in target.events. Derived from the targets whenever one of them changes; what ends
-- jobs looks here once per statement.
create table tenure.outbox_interest (
  queue_id int primary key,
  events smallint not null
);

-- One row for each job that ended, of a queue that some target wants to hear of; written by the statement that ends it. Insert-only; slots are
-- emptied in turn by TRUNCATE once all targets have taken their rows.
create sequence tenure.outbox_id as bigint;
create table tenure.outbox (
  slot smallint not null,
  xid xid8 not null default pg_current_xact_id(),
  id bigint not null default nextval('tenure.outbox_id'),
  queue_id int not null,
  -- As in tenure.history: 6 completed, 7 discarded, 8 cancelled, 9 expired.
  state smallint not null,
  job_id bigint not null,
  job_day int not null,
  kind text not null,
  tenant text,
  attempt int not null,
  failures int not null,
  crashes int not null,
  created_at timestamptz not null,
  started_at timestamptz,
  ended_at timestamptz not null,
  error_message text,
  error_type text,
  effect_key text,
  retry_of text,
  headers jsonb
) partition by list (slot);
create table tenure.outbox_0 partition of tenure.outbox for values in (0) with (autovacuum_vacuum_insert_scale_factor = 1);
create table tenure.outbox_1 partition of tenure.outbox for values in (1) with (autovacuum_vacuum_insert_scale_factor = 1);
create table tenure.outbox_2 partition of tenure.outbox for values in (2) with (autovacuum_vacuum_insert_scale_factor = 1);
create table tenure.outbox_3 partition of tenure.outbox for values in (3) with (autovacuum_vacuum_insert_scale_factor = 1);
create index outbox_xid on tenure.outbox (xid, id);

-- When a slot was emptied last. One row.
create table tenure.outbox_rotation (
  one boolean primary key default true check (one),
  rotated_at timestamptz not null default now()
);
insert into tenure.outbox_rotation default values;

-- Events that were sent to a target and not accepted: to be sent again, or dead.
create table tenure.delivery (
  id bigint generated always as identity,
  target_id bigint not null,
  event_id text not null,
  body text not null,
  attempts int not null,
  due_at timestamptz not null,
  first_failed_at timestamptz not null default now(),
  last_failed_at timestamptz not null default now(),
  last_error text not null,
  dead boolean not null default false,
  primary key (target_id, id)
) with (fillfactor = 70);
create index delivery_due on tenure.delivery (target_id, due_at, id) where not dead;
create index delivery_dead on tenure.delivery (target_id, id) where dead;

-- Partitions of history and dead letters that an export target has taken.
create table tenure.target_export (
  target_id bigint not null,
  partition text not null,
  row_count bigint not null,
  exported_at timestamptz not null default now(),
  primary key (target_id, partition)
);
