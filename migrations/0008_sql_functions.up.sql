-- tenure.enqueue and tenure.complete: for an application's own transaction, in any language. They write the same rows as the RPCs:
-- same history, same events, so the daemon finds the job within its event interval after the application commits.
-- Takes no lock on anything that exists. Their plans are kept by the application's session, so they must not be made for an empty table
-- (a scan) and used on a full one: hence enable_seqscan.

-- Changes a job that has not been claimed, as sql/unique_change.sql does for the daemon, and has the names that it stood at or now waits for looked at.
-- The caller has locked its row.
create function tenure.change_job(q int, job bigint, replaces boolean, payload bytea, content_type text, headers jsonb, reschedules boolean,
                                  due timestamptz, expires timestamptz) returns void language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  j tenure.job;
  to_state smallint;
  to_gate smallint;
  today int := tenure.today();
  apart boolean := length(change_job.payload) > 1000
                   and to_regclass('tenure.payload_' || to_char(date '1970-01-01' + tenure.today(), 'YYYYMMDD')) is not null;
begin
  select x.* into j from tenure.job x where x.id = change_job.job and x.queue_id = q;
  to_state := j.state;
  to_gate := j.gate;
  -- One that waits for other jobs goes on waiting.
  if change_job.reschedules and not (j.state = 2 and j.gate is null) then
    if change_job.due > now() then
      to_state := 1;
      to_gate := null;
    elsif j.state = 1 then
      to_gate := tenure.first_gate(j.group_key, j.concurrency_keys, (select x.gated from tenure.queue x where x.id = q));
      to_state := case when to_gate is null then 3 else 2 end;
    end if;
  end if;
  update tenure.job x
  set state = to_state, place = to_state, gate = to_gate, due_at = case when change_job.reschedules then change_job.due else x.due_at end,
      expires_at = case when change_job.reschedules then change_job.expires else x.expires_at end, updated_at = now()
  where x.id = change_job.job and x.queue_id = q;
  if change_job.replaces then
    update tenure.job x
    set payload = case when not apart then change_job.payload end, payload_day = case when apart then today end,
        payload_size = length(change_job.payload), content_type = change_job.content_type, headers = change_job.headers
    where x.id = change_job.job and x.queue_id = q;
    if apart then
      insert into tenure.payload as p (day, id, queue_id, data) values (today, change_job.job, q, change_job.payload)
      on conflict (id, day) do update set data = excluded.data;
    end if;
  end if;
  if to_state = 3 and j.state = 1 then
    insert into tenure.event (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, scheduled)
    values (tenure.event_slot(), q, 1, j.priority, j.rank, j.id, j.rank, j.id, 1, -1);
  elsif to_state <> j.state or (change_job.reschedules and to_state = 1) then
    insert into tenure.event (slot, queue_id, type, scheduled, blocked, ready, due_at)
    values (tenure.event_slot(), q, 2, (to_state = 1)::int - (j.state = 1)::int, (to_state = 2)::int - (j.state = 2)::int, -(j.state = 3)::int,
            case when to_state = 1 then change_job.due end);
    if to_state <> j.state then
      insert into tenure.event (slot, queue_id, type, admit) values (tenure.event_slot(), q, 5,
        array(select 'k' || k from unnest(j.concurrency_keys) as k) || coalesce(array['g' || j.group_key], '{}') || array['q']);
    end if;
  end if;
end $$;
revoke all on function tenure.change_job(int, bigint, boolean, bytea, text, jsonb, boolean, timestamptz, timestamptz) from public;

-- Enqueues one job; one with keys or a group as blocked: the daemon admits it once this has committed. Returns its id, as callers of the API see it. The queue is made if it does not exist (make it beforehand where two
-- transactions might both do so: the second waits for the first to end).
-- A unique key is locked until the caller's transaction ends; so is the job that holds it, if on_conflict changes it. Who else enqueues with the key
-- meanwhile waits, or is told KEY_BUSY.
create function tenure.enqueue_bytes(
  queue text, kind text, payload bytea, content_type text default 'application/octet-stream', priority int default 0,
  due_at timestamptz default null, delay interval default null, headers jsonb default null, max_attempts int default null,
  expires_at timestamptz default null, idempotency_key text default null, idempotency_retention interval default interval '24 hours',
  tenant text default null, concurrency_keys text[] default null, group_key text default null, unique_key text default null,
  unique_by_kind boolean default false, unique_period interval default null, on_conflict text default 'return')
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
  within bigint;
  keys text[];
  first smallint;
  uname text;
  holder record;
  changes boolean := enqueue_bytes.on_conflict in ('replace', 'reschedule', 'replace_and_reschedule');
  changeable boolean := false;
begin
  if enqueue_bytes.queue is null or enqueue_bytes.queue !~ '^[A-Za-z0-9._:/-]{1,128}$' then
    raise exception 'tenure.enqueue: queue: must be 1 to 128 bytes of [A-Za-z0-9._:/-]' using errcode = 'invalid_parameter_value';
  end if;
  if enqueue_bytes.kind is null or enqueue_bytes.kind !~ '^[!-~]{1,128}$' then
    raise exception 'tenure.enqueue: kind: must be 1 to 128 bytes of printable ASCII without blanks' using errcode = 'invalid_parameter_value';
  end if;
  if enqueue_bytes.priority is null or enqueue_bytes.priority not between -100 and 100 then
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
  if due > now() and enqueue_bytes.expires_at <= due then
    raise exception 'tenure.enqueue: expires_at: must be after %: the job would expire before it is due',
      case when enqueue_bytes.due_at is not null then 'due_at' else 'delay' end using errcode = 'invalid_parameter_value';
  end if;
  if jsonb_typeof(enqueue_bytes.headers) <> 'object'
     or exists (select 1 from jsonb_each(case when jsonb_typeof(enqueue_bytes.headers) = 'object' then enqueue_bytes.headers end) h
                where jsonb_typeof(h.value) <> 'string') then
    raise exception 'tenure.enqueue: headers: must be a JSON object of strings' using errcode = 'invalid_parameter_value';
  end if;
  if (select count(*) > 64 or coalesce(sum(octet_length(h.key) + octet_length(h.value)), 0) > 16384
             or not coalesce(bool_and(octet_length(h.key) between 1 and 255), true)
      from jsonb_each_text(enqueue_bytes.headers) h) then
    raise exception 'tenure.enqueue: headers: must be at most 64, with keys of 1 to 255 bytes, 16384 bytes in all'
      using errcode = 'invalid_parameter_value';
  end if;
  if octet_length(enqueue_bytes.content_type) > 255 then
    raise exception 'tenure.enqueue: content_type: must be at most 255 bytes' using errcode = 'invalid_parameter_value';
  end if;
  if octet_length(enqueue_bytes.tenant) > 255 then
    raise exception 'tenure.enqueue: tenant: must be at most 255 bytes' using errcode = 'invalid_parameter_value';
  end if;
  if enqueue_bytes.idempotency_retention is null or enqueue_bytes.idempotency_retention not between interval '1 second' and interval '30 days' then
    raise exception 'tenure.enqueue: idempotency_retention: must be from 1 second to 30 days' using errcode = 'invalid_parameter_value';
  end if;
  if octet_length(enqueue_bytes.idempotency_key) not between 1 and 255 then
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
  if octet_length(enqueue_bytes.unique_key) not between 1 and 255 then
    raise exception 'tenure.enqueue: unique_key: must be 1 to 255 bytes' using errcode = 'invalid_parameter_value';
  end if;
  if enqueue_bytes.unique_key is null
     and (enqueue_bytes.unique_by_kind or enqueue_bytes.unique_period is not null or enqueue_bytes.on_conflict <> 'return') then
    raise exception 'tenure.enqueue: unique_key: is required by unique_by_kind, unique_period and on_conflict'
      using errcode = 'invalid_parameter_value';
  end if;
  if enqueue_bytes.on_conflict is null
     or enqueue_bytes.on_conflict not in ('return', 'replace', 'reschedule', 'replace_and_reschedule', 'reject') then
    raise exception 'tenure.enqueue: on_conflict: must be return, replace, reschedule, replace_and_reschedule or reject'
      using errcode = 'invalid_parameter_value';
  end if;
  if enqueue_bytes.unique_period is not null and (changes or enqueue_bytes.unique_period not between interval '1 millisecond' and interval '365 days') then
    raise exception 'tenure.enqueue: unique_period: must be from 1 millisecond to 365 days, with return or reject only'
      using errcode = 'invalid_parameter_value';
  end if;
  keys := (select array_agg(distinct k collate "C" order by k collate "C") from unnest(enqueue_bytes.concurrency_keys) as k);

  select x.id, x.gated, x.start_within_us into q, gated, within from tenure.queue x where x.name = enqueue_bytes.queue;
  if q is null then
    insert into tenure.queue (name) values (enqueue_bytes.queue) on conflict (name) do nothing returning id into q;
    if q is not null then
      insert into tenure.event (slot, queue_id, type) values (tenure.event_slot(), q, 4);
    else
      select x.id, x.gated, x.start_within_us into q, gated, within from tenure.queue x where x.name = enqueue_bytes.queue;
    end if;
  end if;

  new_id := nextval('tenure.job_id');
  if enqueue_bytes.idempotency_key is not null then
    print := sha256(convert_to(jsonb_build_array('sql', enqueue_bytes.kind, encode(payload, 'hex'), enqueue_bytes.content_type,
      enqueue_bytes.priority, enqueue_bytes.due_at, enqueue_bytes.delay, enqueue_bytes.headers, enqueue_bytes.max_attempts,
      enqueue_bytes.expires_at, enqueue_bytes.tenant, keys, enqueue_bytes.group_key, enqueue_bytes.unique_key,
      enqueue_bytes.unique_by_kind, enqueue_bytes.unique_period, enqueue_bytes.on_conflict)::text, 'UTF8'));
    insert into tenure.idempotency as k (queue_id, scope, key, job_id, job_day, fingerprint, expires_at)
    values (q, 0, enqueue_bytes.idempotency_key, new_id, today, print, now() + enqueue_bytes.idempotency_retention)
    on conflict (queue_id, scope, key) do update
      set job_id = excluded.job_id, job_day = excluded.job_day, existing = false, fingerprint = excluded.fingerprint, expires_at = excluded.expires_at
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

  if enqueue_bytes.unique_key is not null then
    uname := tenure.unique_name(enqueue_bytes.unique_key, coalesce(enqueue_bytes.unique_by_kind, false), enqueue_bytes.kind);
    -- Once more if the row was pruned between the two.
    loop
      insert into tenure.unique_key as k (queue_id, name) values (q, uname) on conflict (queue_id, name) do nothing;
      perform 1 from tenure.unique_key k where k.queue_id = q and k.name = uname for update;
      exit when found;
    end loop;
    -- A holder that may be changed, and has not been claimed, is locked, so that nobody takes a lease on it meanwhile.
    if changes then
      perform 1 from tenure.unique_key k join tenure.job j on j.id = k.job_id and j.queue_id = q
      where k.queue_id = q and k.name = uname and j.state in (1, 2, 3) for no key update of j;
      changeable := found;
    end if;
    select k.job_id, k.job_day, k.held_until > now() as held, j.state into holder
    from tenure.unique_key k left join tenure.job j on j.id = k.job_id and j.queue_id = q
      -- One whose time to start is over counts no more, although it has not been ended yet.
      and not coalesce(j.expires_at <= now() and j.started_at is null, false)
    where k.queue_id = q and k.name = uname;
    if (changeable and holder.state in (1, 2, 3)) or (not changes and (holder.state is not null or holder.held)) then
      if enqueue_bytes.on_conflict = 'reject' then
        raise exception 'tenure.enqueue: unique_key: job %-%-% holds it (UNIQUE_CONFLICT)', q, holder.job_day, holder.job_id
          using errcode = 'unique_violation';
      end if;
      if changes then
        perform tenure.change_job(q, holder.job_id, on_conflict like 'replace%', payload, enqueue_bytes.content_type, enqueue_bytes.headers,
                                  on_conflict like '%reschedule', due,
                                  coalesce(enqueue_bytes.expires_at, due + within * interval '1 microsecond'));
      end if;
      if enqueue_bytes.idempotency_key is not null then
        update tenure.idempotency k set job_id = holder.job_id, job_day = holder.job_day, existing = true
        where k.queue_id = q and k.scope = 0 and k.key = enqueue_bytes.idempotency_key;
      end if;
      return q || '-' || holder.job_day || '-' || holder.job_id;
    end if;
    update tenure.unique_key k
    set job_id = new_id, job_day = today, held_until = greatest(k.held_until, now() + coalesce(enqueue_bytes.unique_period, interval '0'))
    where k.queue_id = q and k.name = uname;
  end if;

  if due <= now() then
    first := tenure.first_gate(enqueue_bytes.group_key, keys, gated);
  end if;
  -- A large payload goes apart, unless its day's partition has not been made (the daemon makes it): then it stays in the row.
  apart := size > 1000 and to_regclass('tenure.payload_' || to_char(date '1970-01-01' + today, 'YYYYMMDD')) is not null;
  insert into tenure.job (id, queue_id, state, place, priority, day, max_attempts, due_at, expires_at, created_at, updated_at, kind, tenant,
                          payload_size, payload, payload_day, content_type, headers, idempotency_key, concurrency_keys, group_key, gate,
                          unique_name)
  values (new_id, q, case when due > now() then 1 when first is not null then 2 else 3 end, case when due > now() then 1 when first is not null then 2 else 3 end, enqueue_bytes.priority, today, enqueue_bytes.max_attempts, due,
          coalesce(enqueue_bytes.expires_at, due + within * interval '1 microsecond'), now(), now(), enqueue_bytes.kind, enqueue_bytes.tenant, size,
          case when not apart then payload end, case when apart then today end, enqueue_bytes.content_type, enqueue_bytes.headers,
          enqueue_bytes.idempotency_key, keys, enqueue_bytes.group_key, first, uname);
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
  tenant text default null, concurrency_keys text[] default null, group_key text default null, unique_key text default null,
  unique_by_kind boolean default false, unique_period interval default null, on_conflict text default 'return')
returns text language sql
  return tenure.enqueue_bytes(queue, kind, convert_to(payload, 'UTF8'), content_type, priority, due_at, delay, headers, max_attempts,
                              expires_at, idempotency_key, idempotency_retention, tenant, concurrency_keys, group_key, unique_key, unique_by_kind, unique_period,
                              on_conflict);

-- Completes a job under its lease, in the application's transaction: the job is completed if and only if that transaction
-- commits. Raises SQLSTATE TN001 (the message begins with the reason: LEASE_LOST, JOB_CANCELLED, ALREADY_SETTLED, JOB_NOT_FOUND) when
-- the token is not the job's current one, so that the transaction rolls back: that is the fence. Holds the job's row until the
-- transaction ends. Returns the job's id.
create function tenure.complete(lease_token text, result bytea default null, content_type text default 'application/octet-stream')
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

  delete from tenure.job where id = of_id and queue_id = q and token = num and token_secret = secret and state + 0 = 4
    and day = part[2]::int returning * into j;
  if not found then
    select s.state, s.settled_token, s.settled_secret, s.settled_verb into gone from tenure.job s
    where s.id = of_id and s.queue_id = q and s.day = part[2]::int;
    if found then
      if gone.settled_token = num and gone.settled_secret = secret and gone.settled_verb <> 6 then
        raise exception 'ALREADY_SETTLED: this lease of job % has been settled already', job using errcode = 'TN001';
      end if;
      raise exception 'LEASE_LOST: the lease of job % has ended; another worker may hold it now', job using errcode = 'TN001';
    end if;
    select h.state, h.token, h.token_secret, h.settled_verb into gone from (
      select h.state, h.token, h.token_secret, h.settled_verb from tenure.history h
      where h.id = of_id and h.day = part[2]::int and h.ended_on >= date '1970-01-01' + claimed
      union all
      select h.state, h.token, h.token_secret, h.settled_verb from tenure.dead_letter h
      where h.id = of_id and h.day = part[2]::int and h.ended_on >= date '1970-01-01' + claimed
    ) h;
    if not found then
      raise exception 'JOB_NOT_FOUND: there is no job %', job using errcode = 'TN001';
    elsif gone.state = 8 and not exists (select 1 from tenure.forward f where f.job_id = of_id and f.queue_id = q) then
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
    result, result_type, concurrency_keys, group_key, unique_name)
  values ((now() at time zone 'utc')::date, j.id, j.queue_id, 6, j.priority, j.day, j.attempt, j.failures, j.crashes, j.releases, j.snoozes,
    j.max_attempts, j.crash_budget, j.token, j.token_secret, 1, j.worker, j.leased_at, j.due_at, j.expires_at, j.created_at, j.started_at,
    now(), j.kind, j.tenant, j.payload_size, j.payload, j.payload_day, j.content_type, j.headers, j.backoff_initial_us,
    j.backoff_multiplier, j.backoff_max_us, j.error_message, j.error_type, j.error_detail, j.error_attempt, j.error_at, j.effect_key,
    j.retry_of, j.idempotency_key, complete.result, case when complete.result is not null then complete.content_type end,
    j.concurrency_keys, j.group_key, j.unique_name);
  insert into tenure.event (slot, queue_id, type, leased, completed) values (tenure.event_slot(), q, 2, -1, 1);
  if j.gate is not null or j.awaited then
    insert into tenure.event (slot, queue_id, type, admit) values (tenure.event_slot(), q, 5,
      array(select 'k' || k from unnest(j.concurrency_keys) as k) || coalesce(array['g' || j.group_key], '{}') || array['q']
      || case when j.awaited then array['w' || j.id] else '{}' end);
  end if;
  insert into tenure.outbox (slot, queue_id, state, job_id, job_day, kind, tenant, attempt, failures, crashes, created_at, started_at, ended_at,
    effect_key, retry_of, headers)
  select tenure.event_slot(), q, 6, j.id, j.day, j.kind, j.tenant, j.attempt, j.failures, j.crashes, j.created_at, j.started_at, now(),
    j.effect_key, j.retry_of, j.headers
  where exists (select 1 from tenure.outbox_interest i where i.queue_id in (0, q) and i.events & 1 <> 0);
  return q || '-' || j.day || '-' || j.id;
end $$;

comment on function tenure.enqueue is 'Enqueues a job in the caller''s transaction; returns its id';
comment on function tenure.enqueue_bytes is 'tenure.enqueue for a payload of bytes';
comment on function tenure.complete is 'Completes a leased job in the caller''s transaction, under its lease token';
