-- Admission: concurrency keys, groups, limits. Adds columns without rewriting anything (ACCESS EXCLUSIVE on tenure.job, tenure.queue,
-- tenure.history, tenure.dead_letter and tenure.event for a moment: the migrator's lock waits behind running transactions, so run it when none is
-- long). The new indexes of tenure.job are partial and find nothing to hold yet; building them reads the table of live jobs once and holds
-- up its writers meanwhile. Daemons of an older version go on, but make jobs with keys ready without asking: replace all of them before keys,
-- groups and limits are used.

-- Whether all jobs of the queue pass its own gate (it has a limit or a rate of its own).
alter table tenure.queue add column gated boolean not null default false;
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
-- serves; ordered by id the planner may walk the primary key from its beginning to find one of a group.)
create index job_group on tenure.job (queue_id, group_key, (id + 0)) where group_key is not null;
create index job_group_passed on tenure.job (queue_id, group_key) where group_key is not null and gate <> 1;
-- Who waits for the queue.
create index job_gate on tenure.job (queue_id, priority desc, id) where gate = 6;

-- The first gate of a job that is due; NULL: it is ready at once.
create function tenure.first_gate(group_key text, concurrency_keys text[], gated boolean) returns smallint
  language sql immutable parallel safe
  return (case when group_key is not null then 1 when concurrency_keys is not null then 2 when gated then 6 end)::smallint;

-- What an operator set.
create table tenure.admission_limit (
  queue_id int not null,
  -- 1: this key; 2: keys that begin so and have no limit of their own (the longest beginning counts); 3: the queue (key '').
  scope smallint not null,
  key text collate "C" not null,
  -- At most so many admitted at once. NULL: any number.
  max_leased int,
  -- At most one start per so many microseconds, and so many at once after a pause. NULL: at any rate.
  rate_interval_us bigint,
  rate_burst int,
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
-- The rank of what is admitted together: beyond all that was admitted before.
create sequence tenure.admission_rank as bigint;

-- Type 5: keys ('k' and the key), groups ('g' and the group) or the queue ('q') that are to be looked at, told by an application's transaction.
alter table tenure.event add column admit text[] collate "C";

-- tenure.complete frees the job's slots: its two statements are replaced where they stand, whichever version of the function is there.
do $migrate$
declare
  source text := pg_get_functiondef('tenure.complete(text,bytea,text)'::regprocedure);
  changed text;
begin
  changed := replace(source, E'idempotency_key,\n    result, result_type)', E'idempotency_key,\n    result, result_type, concurrency_keys, group_key)');
  changed := replace(changed, 'case when complete.result is not null then complete.content_type end);',
                     'case when complete.result is not null then complete.content_type end, j.concurrency_keys, j.group_key);');
  changed := replace(changed, 'values (tenure.event_slot(), q, 2, -1, 1);', $new$values (tenure.event_slot(), q, 2, -1, 1);
  if j.gate is not null then
    insert into tenure.event (slot, queue_id, type, admit) values (tenure.event_slot(), q, 5,
      array(select 'k' || k from unnest(j.concurrency_keys) as k) || coalesce(array['g' || j.group_key], '{}') || array['q']);
  end if;$new$);
  if length(changed) - length(source) < 300 then
    raise exception 'tenure.complete is not the function that this migration knows';
  end if;
  execute changed;
end $migrate$;

-- tenure.enqueue with keys. The signature changes, so the functions are made anew.
drop function tenure.enqueue(text, text, text, text, int, timestamptz, interval, jsonb, int, timestamptz, text, interval, text);
drop function tenure.enqueue_bytes(text, text, bytea, text, int, timestamptz, interval, jsonb, int, timestamptz, text, interval, text);

-- Enqueues one job; one with keys or a group as blocked: the daemon admits it once this has committed. Returns its id, as callers of the API see it. The queue is made if it does not exist (make it beforehand where two
-- transactions might both do so: the second waits for the first to end).
create function tenure.enqueue_bytes(
  queue text, kind text, payload bytea, content_type text default 'application/octet-stream', priority int default 0,
  due_at timestamptz default null, delay interval default null, headers jsonb default null, max_attempts int default null,
  expires_at timestamptz default null, idempotency_key text default null, idempotency_retention interval default interval '24 hours',
  tenant text default null, concurrency_keys text[] default null, group_key text default null)
returns text language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  q int;
  new_id bigint;
  today int := tenure.today();
  due timestamptz := greatest(coalesce(enqueue_bytes.due_at, now() + enqueue_bytes.delay, now()), now());
  payload bytea := coalesce(enqueue_bytes.payload, '');
  size int := length(coalesce(enqueue_bytes.payload, ''));
  apart boolean;
  print bytea;
  had record;
  gated boolean;
  keys text[];
  first smallint;
begin
  if enqueue_bytes.queue is null or enqueue_bytes.queue !~ '^[A-Za-z0-9._:/-]{1,128}$' then
    raise exception 'tenure.enqueue: queue: must be 1 to 128 bytes of [A-Za-z0-9._:/-]' using errcode = 'invalid_parameter_value';
  end if;
  if enqueue_bytes.kind is null or enqueue_bytes.kind !~ '^[!-~]{1,128}$' then
    raise exception 'tenure.enqueue: kind: must be 1 to 128 bytes of printable ASCII without blanks' using errcode = 'invalid_parameter_value';
  end if;
  if enqueue_bytes.priority not between -100 and 100 then
    raise exception 'tenure.enqueue: priority: must be from -100 to 100' using errcode = 'invalid_parameter_value';
  end if;
  if size > 1048576 then
    raise exception 'tenure.enqueue: payload: must be at most 1048576 bytes, is %', size using errcode = 'invalid_parameter_value';
  end if;
  if enqueue_bytes.max_attempts not between 1 and 10000 then
    raise exception 'tenure.enqueue: max_attempts: must be from 1 to 10000' using errcode = 'invalid_parameter_value';
  end if;
  if enqueue_bytes.due_at is not null and enqueue_bytes.delay is not null then
    raise exception 'tenure.enqueue: due_at, delay: give at most one of them' using errcode = 'invalid_parameter_value';
  end if;
  if not isfinite(enqueue_bytes.due_at) or enqueue_bytes.due_at > now() + interval '10 years' then
    raise exception 'tenure.enqueue: due_at: must be within the next 10 years' using errcode = 'invalid_parameter_value';
  end if;
  if enqueue_bytes.delay < interval '0' or enqueue_bytes.delay > interval '10 years' then
    raise exception 'tenure.enqueue: delay: must be from 0 to 10 years' using errcode = 'invalid_parameter_value';
  end if;
  if not isfinite(enqueue_bytes.expires_at) or enqueue_bytes.expires_at > now() + interval '100 years' then
    raise exception 'tenure.enqueue: expires_at: must be within the next 100 years' using errcode = 'invalid_parameter_value';
  end if;
  if jsonb_typeof(enqueue_bytes.headers) <> 'object' then
    raise exception 'tenure.enqueue: headers: must be a JSON object of strings' using errcode = 'invalid_parameter_value';
  end if;
  if length(enqueue_bytes.idempotency_key) not between 1 and 255 then
    raise exception 'tenure.enqueue: idempotency_key: must be 1 to 255 bytes' using errcode = 'invalid_parameter_value';
  end if;
  if cardinality(enqueue_bytes.concurrency_keys) > 4 then
    raise exception 'tenure.enqueue: concurrency_keys: must be at most 4' using errcode = 'invalid_parameter_value';
  end if;
  if exists (select 1 from unnest(enqueue_bytes.concurrency_keys) as k where (octet_length(k) between 1 and 255) is not true) then
    raise exception 'tenure.enqueue: concurrency_keys: must be 1 to 255 bytes each' using errcode = 'invalid_parameter_value';
  end if;
  if octet_length(enqueue_bytes.group_key) not between 1 and 255 then
    raise exception 'tenure.enqueue: group_key: must be 1 to 255 bytes' using errcode = 'invalid_parameter_value';
  end if;
  keys := (select array_agg(distinct k collate "C" order by k collate "C") from unnest(enqueue_bytes.concurrency_keys) as k);

  select x.id, x.gated into q, gated from tenure.queue x where x.name = enqueue_bytes.queue;
  if q is null then
    insert into tenure.queue (name) values (enqueue_bytes.queue) on conflict (name) do nothing returning id into q;
    if q is not null then
      insert into tenure.event (slot, queue_id, type) values (tenure.event_slot(), q, 4);
    else
      select id into q from tenure.queue where name = enqueue_bytes.queue;
    end if;
  end if;

  new_id := nextval('tenure.job_id');
  if enqueue_bytes.idempotency_key is not null then
    print := sha256(convert_to(jsonb_build_array('sql', enqueue_bytes.kind, encode(payload, 'hex'), enqueue_bytes.content_type,
      enqueue_bytes.priority, enqueue_bytes.due_at, enqueue_bytes.delay, enqueue_bytes.headers, enqueue_bytes.max_attempts,
      enqueue_bytes.expires_at, enqueue_bytes.tenant)::text
      -- As it was before there were keys, for jobs without them.
      || coalesce(to_jsonb(keys)::text, '') || coalesce(enqueue_bytes.group_key, ''), 'UTF8'));
    insert into tenure.idempotency as k (queue_id, scope, key, job_id, job_day, fingerprint, expires_at)
    values (q, 0, enqueue_bytes.idempotency_key, new_id, today, print, now() + enqueue_bytes.idempotency_retention)
    on conflict (queue_id, scope, key) do update
      set job_id = excluded.job_id, job_day = excluded.job_day, fingerprint = excluded.fingerprint, expires_at = excluded.expires_at
      where k.expires_at <= now();
    if not found then
      select k.job_id, k.job_day, k.fingerprint into had from tenure.idempotency k
      where k.queue_id = q and k.scope = 0 and k.key = enqueue_bytes.idempotency_key;
      if had.fingerprint is distinct from print then
        raise exception 'tenure.enqueue: idempotency_key: was used for a job with other content (IDEMPOTENCY_CONFLICT)'
          using errcode = 'unique_violation';
      end if;
      return q || '-' || had.job_day || '-' || had.job_id;
    end if;
  end if;

  if due <= now() then
    first := tenure.first_gate(enqueue_bytes.group_key, keys, gated);
  end if;
  -- A large payload goes apart, unless its day's partition has not been made (the daemon makes it): then it stays in the row.
  apart := size > 1000 and to_regclass('tenure.payload_' || to_char(date '1970-01-01' + today, 'YYYYMMDD')) is not null;
  insert into tenure.job (id, queue_id, state, priority, day, max_attempts, due_at, expires_at, created_at, updated_at, kind, tenant,
                          payload_size, payload, payload_day, content_type, headers, idempotency_key, concurrency_keys, group_key, gate)
  values (new_id, q, case when due > now() then 1 when first is not null then 2 else 3 end, enqueue_bytes.priority, today, enqueue_bytes.max_attempts, due,
          enqueue_bytes.expires_at, now(), now(), enqueue_bytes.kind, enqueue_bytes.tenant, size,
          case when not apart then payload end, case when apart then today end, enqueue_bytes.content_type, enqueue_bytes.headers,
          enqueue_bytes.idempotency_key, keys, enqueue_bytes.group_key, first);
  if apart then
    insert into tenure.payload (day, id, queue_id, data) values (today, new_id, q, payload);
  end if;
  if first is not null then
    insert into tenure.event (slot, queue_id, type, blocked, enqueued) values (tenure.event_slot(), q, 2, 1, 1);
    insert into tenure.event (slot, queue_id, type, admit) values (tenure.event_slot(), q, 5,
      array(select 'k' || k from unnest(keys) as k) || coalesce(array['g' || enqueue_bytes.group_key], '{}') || array['q']);
  elsif due <= now() then
    insert into tenure.event (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, enqueued)
    values (tenure.event_slot(), q, 1, enqueue_bytes.priority, 0, new_id, 0, new_id, 1, 1);
  else
    insert into tenure.event (slot, queue_id, type, scheduled, enqueued, due_at) values (tenure.event_slot(), q, 2, 1, 1, due);
  end if;
  return q || '-' || today || '-' || new_id;
end $$;

-- The same with a payload given as text, JSON unless said otherwise; stored as the bytes of that text, never reformatted.
create function tenure.enqueue(
  queue text, kind text, payload text default 'null', content_type text default 'application/json', priority int default 0,
  due_at timestamptz default null, delay interval default null, headers jsonb default null, max_attempts int default null,
  expires_at timestamptz default null, idempotency_key text default null, idempotency_retention interval default interval '24 hours',
  tenant text default null, concurrency_keys text[] default null, group_key text default null)
returns text language sql
  return tenure.enqueue_bytes(queue, kind, convert_to(payload, 'UTF8'), content_type, priority, due_at, delay, headers, max_attempts,
                              expires_at, idempotency_key, idempotency_retention, tenant, concurrency_keys, group_key);

comment on function tenure.enqueue is 'Enqueues a job in the caller''s transaction; returns its id';
comment on function tenure.enqueue_bytes is 'tenure.enqueue for a payload of bytes';
