-- Schedules (cron). Makes new tables and takes no lock on anything that exists; safe to run while older daemons serve.
-- A daemon of this version refuses an older schema; an older daemon works on this one and leaves the tables alone.

create table tenure.schedule (
  id bigint generated always as identity primary key,
  name text collate "C" not null unique,
  -- Grows with every change of the schedule (not when it fires): the scheduler does what it planned for this version only.
  version bigint not null default 1,
  -- When: a cron expression in a time zone, or a distance from anchor_at.
  cron text,
  time_zone text not null default 'UTC',
  interval_us bigint,
  anchor_at timestamptz not null,
  -- How many missed slots run.
  catch_up int not null default 1,
  -- 1 allow, 2 skip, 3 cancel the previous.
  overlap smallint not null default 1,
  paused boolean not null default false,
  -- The next slot; NULL while paused.
  next_at timestamptz,
  -- The last slot that made a job, and that job.
  last_slot timestamptz,
  last_job_queue_id int,
  last_job_day int,
  last_job_id bigint,
  fired bigint not null default 0,
  skipped_missed bigint not null default 0,
  skipped_overlap bigint not null default 0,
  description text not null default '',
  created_at timestamptz not null,
  updated_at timestamptz not null,
  -- The job that each slot makes; columns as in tenure.job.
  queue_id int not null,
  kind text not null,
  priority smallint not null default 0,
  tenant text,
  payload bytea not null,
  content_type text,
  headers jsonb,
  ttl_us bigint,
  max_attempts int,
  crash_budget int,
  backoff_initial_us bigint,
  backoff_multiplier double precision,
  backoff_max_us bigint,
  check ((cron is null) <> (interval_us is null))
);
-- What the scheduler reads.
create index schedule_next on tenure.schedule (next_at, id) where next_at is not null;

-- One row for each slot that made a job, written in the transaction that made it: its key is what keeps a slot from having two.
create table tenure.schedule_run (
  schedule_id bigint not null,
  -- For a run that was asked for by hand: when.
  slot timestamptz not null,
  -- Of the request for a run by hand; a repeat finds it.
  request_id text collate "C",
  job_queue_id int not null,
  job_day int not null,
  job_id bigint not null,
  fired_at timestamptz not null,
  primary key (schedule_id, slot)
);
create unique index schedule_run_request on tenure.schedule_run (schedule_id, request_id) where request_id is not null;
-- What pruning reads.
create index schedule_run_fired on tenure.schedule_run (fired_at);

-- A slot as a job's header tells it: RFC 3339 in UTC, with a fraction only if there is one.
create function tenure.slot_text(slot timestamptz) returns text language sql stable parallel safe
  return to_char(slot at time zone 'UTC',
                 case when slot = date_trunc('second', slot) then 'YYYY-MM-DD"T"HH24:MI:SS"Z"' else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end);
revoke all on function tenure.slot_text(timestamptz) from public;
