-- Removes the targets and the outbox: events and deliveries that were not sent yet are lost. tenure.complete becomes what it was.
drop table tenure.target_export, tenure.delivery, tenure.outbox_rotation, tenure.outbox, tenure.outbox_interest, tenure.target_state, tenure.target;
drop sequence tenure.outbox_id;

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
  return q || '-' || j.day || '-' || j.id;
end $$;
