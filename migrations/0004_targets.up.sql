-- Targets: where the events of jobs, and copies of jobs, go (webhooks, SQS, directories, S3-compatible buckets, another Tenure), and the outbox from
-- which they are served. Makes new tables; replaces tenure.complete, which takes no lock that anybody waits for. Safe to run while older daemons serve:
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

-- As before, and the event of the job's end, if a target wants it.
-- Completes a job under its lease, in the application's transaction: the job is completed if and only if that transaction
-- commits. Raises SQLSTATE TN001 (the message begins with the reason: LEASE_LOST, JOB_CANCELLED, ALREADY_SETTLED, JOB_NOT_FOUND) when
-- the token is not the job's current one, so that the transaction rolls back: that is the fence. Holds the job's row until the
-- transaction ends. Returns the job's id.
create or replace function tenure.complete(lease_token text, result bytea default null, content_type text default 'application/octet-stream')
returns text language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  part text[] := regexp_match(lease_token, '^(\d{1,9})-(\d{1,6})-(\d{1,18})\.(\d{1,9})\.(\d{1,6})\.([0-9a-f]{16})$');
  q int;
  of_id bigint;
  job text;
  num int;
  claimed int;
  secret bigint;
  j tenure.job;
  gone record;
  kind text;
begin
  if part is null then
    raise exception 'INVALID_FIELD: lease_token: is not a lease token; pass the lease_token of a claimed job unchanged'
      using errcode = 'invalid_parameter_value';
  end if;
  q := part[1]; of_id := part[3]; job := format('%s-%s-%s', q, part[2], of_id); num := part[4]; claimed := part[5];
  secret := ('x' || part[6])::bit(64)::bigint;
  if length(complete.result) > 1048576 then
    raise exception 'PAYLOAD_TOO_LARGE: result: must be at most 1048576 bytes' using errcode = 'invalid_parameter_value';
  end if;

  delete from tenure.job where id = of_id and queue_id = q and token = num and token_secret = secret and state + 0 = 4 returning * into j;
  if not found then
    select s.state, s.settled_token, s.settled_secret, s.settled_verb into gone from tenure.job s where s.id = of_id and s.queue_id = q;
    if found then
      if gone.settled_token = num and gone.settled_secret = secret and gone.settled_verb <> 6 then
        raise exception 'ALREADY_SETTLED: this lease of job % has been settled already', job using errcode = 'TN001';
      end if;
      raise exception 'LEASE_LOST: the lease of job % has ended; another worker may hold it now', job using errcode = 'TN001';
    end if;
    select h.state, h.token, h.token_secret, h.settled_verb into gone from (
      select h.state, h.token, h.token_secret, h.settled_verb from tenure.history h
      where h.id = of_id and h.ended_on >= date '1970-01-01' + claimed
      union all
      select h.state, h.token, h.token_secret, h.settled_verb from tenure.dead_letter h
      where h.id = of_id and h.ended_on >= date '1970-01-01' + claimed
    ) h;
    if not found then
      raise exception 'JOB_NOT_FOUND: there is no job %', job using errcode = 'TN001';
    elsif gone.state = 8 then
      raise exception 'JOB_CANCELLED: job % was cancelled', job using errcode = 'TN001';
    elsif gone.token = num and gone.token_secret = secret and gone.settled_verb <> 6 then
      raise exception 'ALREADY_SETTLED: this lease of job % has been settled already', job using errcode = 'TN001';
    end if;
    raise exception 'LEASE_LOST: the lease of job % has ended', job using errcode = 'TN001';
  end if;

  perform tenure.ensure_day(tenure.today());
  insert into tenure.history (ended_on, id, queue_id, state, priority, day, attempt, failures, crashes, releases, snoozes,
    max_attempts, crash_budget, token, token_secret, settled_verb, worker, leased_at, due_at, expires_at, created_at, started_at,
    ended_at, kind, tenant, payload_size, payload, payload_day, content_type, headers, backoff_initial_us, backoff_multiplier,
    backoff_max_us, error_message, error_type, error_detail, error_attempt, error_at, effect_key, retry_of, idempotency_key,
    result, result_type)
  values ((now() at time zone 'utc')::date, j.id, j.queue_id, 6, j.priority, j.day, j.attempt, j.failures, j.crashes, j.releases, j.snoozes,
    j.max_attempts, j.crash_budget, j.token, j.token_secret, 1, j.worker, j.leased_at, j.due_at, j.expires_at, j.created_at, j.started_at,
    now(), j.kind, j.tenant, j.payload_size, j.payload, j.payload_day, j.content_type, j.headers, j.backoff_initial_us,
    j.backoff_multiplier, j.backoff_max_us, j.error_message, j.error_type, j.error_detail, j.error_attempt, j.error_at, j.effect_key,
    j.retry_of, j.idempotency_key, complete.result, case when complete.result is not null then complete.content_type end);
  insert into tenure.event (slot, queue_id, type, leased, completed) values (tenure.event_slot(), q, 2, -1, 1);
  insert into tenure.outbox (slot, queue_id, state, job_id, job_day, kind, tenant, attempt, failures, crashes, created_at, started_at, ended_at,
    effect_key, retry_of, headers)
  select tenure.event_slot(), q, 6, j.id, j.day, j.kind, j.tenant, j.attempt, j.failures, j.crashes, j.created_at, j.started_at, now(),
    j.effect_key, j.retry_of, j.headers
  where exists (select 1 from tenure.outbox_interest i where i.queue_id in (0, q) and i.events & 1 <> 0);
  return q || '-' || j.day || '-' || j.id;
end $$;
