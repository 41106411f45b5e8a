-- Moves: dead letters, or a backlog, go to another queue at a bounded rate. Makes new tables, and adds columns to tenure.queue without rewriting it
-- (ACCESS EXCLUSIVE for a moment: the migrator's lock waits behind running transactions, so run it when none is long);
-- safe to run while older daemons serve. An older daemon that leads the lifecycle worker leaves moves standing, and one that ends a job leaves its
-- dead letter where it is, whatever the queue's rule.

-- The rule of a queue: where its dead letters go (a queue's name never changes), and how many a second; NULL: nowhere, at any rate.
alter table tenure.queue add column dead_letter_queue text collate "C", add column dead_letter_rate int;

create table tenure.move (
  id bigint generated always as identity primary key,
  -- Of the call that made it: a repeat finds it.
  request_id text collate "C" unique,
  from_queue_id int not null,
  to_queue_id int not null,
  -- 1 dead letters, 2 backlog (live jobs that are neither leased nor suspended).
  source smallint not null,
  -- Only these; empty: all.
  kinds text[] not null default '{}',
  -- Jobs a second, and how many of the jobs that it made may be live; NULL: no bound.
  rate int,
  max_in_flight int,
  -- 1 running, 2 paused, 3 done, 4 cancelled.
  state smallint not null default 1,
  moved bigint not null default 0,
  -- Jobs that it passed over since their payload is gone, in the pass over the source that is under way.
  failed bigint not null default 0,
  last_error text not null default '',
  -- The source is read by id from here on; from the beginning again, until a whole pass has moved nothing and left nothing for a later one.
  cursor_id bigint not null default 0,
  moved_in_pass bigint not null default 0,
  -- Jobs that it had to leave for a later pass: an earlier one of their group has to go first.
  held_in_pass bigint not null default 0,
  -- Until when the rate's jobs have been used up.
  used_until timestamptz not null,
  -- The jobs that it made and that were live when last looked at; only kept under max_in_flight.
  in_flight bigint[] not null default '{}',
  -- The rule of its source queue: never ends, takes what tenure.dead_letter_due names, and is running or paused as the queue says.
  standing boolean not null default false,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  ended_at timestamptz
) with (fillfactor = 50);
alter table tenure.move alter column in_flight set storage external;
-- What the lifecycle worker reads.
create index move_running on tenure.move (id) where state = 1 and not standing;
-- One rule a queue.
create unique index move_standing on tenure.move (from_queue_id) where standing;

-- Dead letters that a queue's rule is to move, written by the statement that made them; a row goes with its move. So a rule reads what there is
-- to do, and not the dead letters of a month again and again. Read from its head: a vacuum that is held back leaves dead entries there, as many
-- as dead letters were moved meanwhile.
create table tenure.dead_letter_due (
  queue_id int not null,
  id bigint not null,
  ended_on date not null,
  primary key (queue_id, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 2);
-- What pruning reads.
create index dead_letter_due_ended on tenure.dead_letter_due (ended_on);

-- Which job a job was moved to. A job is moved once: the key is what keeps it from having two successors.
create table tenure.forward (
  job_id bigint not null,
  queue_id int not null,
  job_day int not null,
  to_job_id bigint not null,
  to_queue_id int not null,
  to_job_day int not null,
  move_id bigint not null,
  moved_at timestamptz not null,
  constraint forward_pkey primary key (job_id) include (queue_id)
);
-- What pruning reads.
create index forward_moved on tenure.forward (moved_at);

-- A job's id as callers see it.
create function tenure.job_text(queue_id int, day int, id bigint) returns text language sql immutable parallel safe
  return queue_id || '-' || day || '-' || id;
revoke all on function tenure.job_text(int, int, bigint) from public;
