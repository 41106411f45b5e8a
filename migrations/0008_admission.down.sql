-- Jobs that are blocked become ready, whatever their limits were; keys, groups and limits are forgotten.
update tenure.job set state = 3 where state = 2;
drop function tenure.enqueue(text, text, text, text, int, timestamptz, interval, jsonb, int, timestamptz, text, interval, text, text[], text);
drop function tenure.enqueue_bytes(text, text, bytea, text, int, timestamptz, interval, jsonb, int, timestamptz, text, interval, text, text[], text);
do $migrate$
declare
  source text := pg_get_functiondef('tenure.complete(text,bytea,text)'::regprocedure);
begin
  source := replace(source, ', concurrency_keys, group_key)', ')');
  source := replace(source, ', j.concurrency_keys, j.group_key);', ');');
  source := regexp_replace(source, E'\n  if j.gate is not null then\n.*?end if;', '');
  execute source;
end $migrate$;
drop sequence tenure.admission_rank;
drop table tenure.admission_turn, tenure.admission_pace, tenure.admission_limit;
alter table tenure.event drop column admit;
alter table tenure.history drop column concurrency_keys, drop column group_key;
alter table tenure.dead_letter drop column concurrency_keys, drop column group_key;
alter table tenure.job drop column concurrency_keys, drop column group_key, drop column gate;
drop function tenure.first_gate(text, text[], boolean);
drop index tenure.queue_gated;
alter table tenure.queue drop column gated, drop column skip_retrying;

-- Enqueues one job. Returns its id, as callers of the API see it. The queue is made if it does not exist (make it beforehand where two
-- transactions might both do so: the second waits for the first to end).
create function tenure.enqueue_bytes(
  queue text, kind text, payload bytea, content_type text default 'application/octet-stream', priority int default 0,
  due_at timestamptz default null, delay interval default null, headers jsonb default null, max_attempts int default null,
  expires_at timestamptz default null, idempotency_key text default null, idempotency_retention interval default interval '24 hours',
  tenant text default null)
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

  select id into q from tenure.queue where name = enqueue_bytes.queue;
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
      enqueue_bytes.expires_at, enqueue_bytes.tenant)::text, 'UTF8'));
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

  -- A large payload goes apart, unless its day's partition has not been made (the daemon makes it): then it stays in the row.
  apart := size > 1000 and to_regclass('tenure.payload_' || to_char(date '1970-01-01' + today, 'YYYYMMDD')) is not null;
  insert into tenure.job (id, queue_id, state, priority, day, max_attempts, due_at, expires_at, created_at, updated_at, kind, tenant,
                          payload_size, payload, payload_day, content_type, headers, idempotency_key)
  values (new_id, q, case when due <= now() then 3 else 1 end, enqueue_bytes.priority, today, enqueue_bytes.max_attempts, due,
          enqueue_bytes.expires_at, now(), now(), enqueue_bytes.kind, enqueue_bytes.tenant, size,
          case when not apart then payload end, case when apart then today end, enqueue_bytes.content_type, enqueue_bytes.headers,
          enqueue_bytes.idempotency_key);
  if apart then
    insert into tenure.payload (day, id, queue_id, data) values (today, new_id, q, payload);
  end if;
  if due <= now() then
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
  tenant text default null)
returns text language sql
  return tenure.enqueue_bytes(queue, kind, convert_to(payload, 'UTF8'), content_type, priority, due_at, delay, headers, max_attempts,
                              expires_at, idempotency_key, idempotency_retention, tenant);
