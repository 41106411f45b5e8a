// PostgresStore: what producers and operators ask of single jobs.
#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/fingerprint.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

// How long a keyed batch waits for a key that somebody has written and not committed, before the batch is split.
constexpr absl::Duration kKeyWait = absl::Milliseconds(100);
constexpr int32_t kDaysTo2000 = 10957;  // PostgreSQL's date counts from 2000-01-01.

std::optional<int64_t> Micros(const std::optional<absl::Duration>& duration) {
  if (!duration) return std::nullopt;
  return absl::ToInt64Microseconds(*duration);
}

std::optional<std::string_view> NonEmpty(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

// $2..$17 of enqueue.sql and enqueue_keyed.sql. `Jobs`: a range of NewJob or const NewJob*.
template <typename Jobs, typename Deref>
void AddJobs(Params& params, const Jobs& jobs, Deref at) {
  using Item = std::decay_t<decltype(*std::begin(jobs))>;
  std::vector<std::string> headers;
  headers.reserve(std::size(jobs));
  for (const Item& item : jobs) headers.push_back(at(item).headers.empty() ? std::string() : ToJson(at(item).headers));
  params.AddArray(jobs, [&](const Item& i) { return std::string_view(at(i).kind); })
      .AddByteaArray(jobs, [&](const Item& i) { return std::string_view(at(i).payload.data); })
      .AddArray(jobs, [&](const Item& i) { return NonEmpty(at(i).payload.content_type); })
      .AddArray(headers, [](const std::string& h) { return NonEmpty(h); })
      .AddArray(jobs, [&](const Item& i) { return at(i).priority; })
      .AddArray(jobs, [&](const Item& i) { return NonEmpty(at(i).tenant); })
      .AddArray(jobs, [&](const Item& i) { return at(i).due; })
      .AddArray(jobs, [&](const Item& i) { return Micros(at(i).delay); })
      .AddArray(jobs, [&](const Item& i) { return at(i).expires; })
      .AddArray(jobs, [&](const Item& i) { return Micros(at(i).ttl); })
      .AddArray(jobs, [&](const Item& i) { return at(i).max_attempts; })
      .AddArray(jobs, [&](const Item& i) { return at(i).crash_budget; })
      .AddArray(jobs,
                [&](const Item& i) { return at(i).backoff ? std::optional(at(i).backoff->initial_us) : std::nullopt; })
      .AddArray(jobs,
                [&](const Item& i) { return at(i).backoff ? std::optional(at(i).backoff->multiplier) : std::nullopt; })
      .AddArray(jobs,
                [&](const Item& i) { return at(i).backoff ? std::optional(at(i).backoff->max_us) : std::nullopt; })
      .AddArray(jobs, [&](const Item& i) { return NonEmpty(at(i).effect_key); });
}

// The concurrency keys of each job as the text of an array (arrays of arrays are all of one length), and the groups.
template <typename Jobs, typename Deref>
void AddGates(Params& params, const Jobs& jobs, Deref at) {
  using Item = std::decay_t<decltype(*std::begin(jobs))>;
  std::vector<std::string> keys;
  keys.reserve(std::size(jobs));
  for (const Item& item : jobs) {
    std::string& text = keys.emplace_back();
    for (const std::string& key : at(item).concurrency_keys) {
      absl::StrAppend(&text, text.empty() ? "{" : ",", "\"", absl::StrReplaceAll(key, {{"\\", "\\\\"}, {"\"", "\\\""}}),
                      "\"");
    }
    if (!text.empty()) text.push_back('}');
  }
  params.AddArray(keys, [](const std::string& k) { return NonEmpty(k); }).AddArray(jobs, [&](const Item& i) {
    return NonEmpty(at(i).group);
  });
}

// What a job that was accepted as blocked waits for.
void NoteBlocked(const NewJob& job, GateNames& names) {
  for (const std::string& key : job.concurrency_keys) names.push_back("k" + key);
  if (!job.group.empty()) names.push_back("g" + job.group);
  names.emplace_back("q");
}

// The state in which a job was accepted.
JobState StateOf(const Result& rows, int row, int due_in, int gate) {
  if (rows.Double(row, due_in) > 0) return JobState::kScheduled;
  return rows.IsNull(row, gate) ? JobState::kReady : JobState::kBlocked;
}

// Rows of the two enqueue statements: what became ready, per priority, and what is due later.
void NoteRows(const Result& rows, int32_t queue, EnqueueResult& result) {
  const int id = rows.Column("id"), priority = rows.Column("priority"), due_in = rows.Column("due_in"),
            xid = rows.Column("xid"), gate = rows.Column("gate");
  std::map<int16_t, ReadyRange> ready;
  for (int row = 0; row < rows.rows(); ++row) {
    result.xid = static_cast<uint64_t>(rows.Int(row, xid));
    const double wait = rows.Double(row, due_in);
    if (wait > 0) {
      const absl::Duration from_now = absl::Seconds(wait);
      if (!result.earliest_due || from_now < *result.earliest_due) result.earliest_due = from_now;
      continue;
    }
    if (!rows.IsNull(row, gate)) continue;
    const Key key{0, rows.Int(row, id)};
    auto [range, fresh] = ready.try_emplace(static_cast<int16_t>(rows.Int(row, priority)));
    if (fresh) range->second = {queue, range->first, key, key, 0};
    range->second.low = std::min(range->second.low, key);
    range->second.high = std::max(range->second.high, key);
    ++range->second.count;
  }
  for (const auto& [unused, range] : ready) result.ready.push_back(range);
}

}  // namespace

absl::StatusOr<std::map<std::string, int64_t>> PostgresStore::TenantDepths(int32_t queue,
                                                                           std::span<const std::string> tenants,
                                                                           int64_t stop) {
  TENURE_ASSIGN_OR_RETURN(const Result rows,
                          RunOne("tenant_depths", sql::kTenantDepths, Params().Add(queue).AddArray(tenants).Add(stop)));
  std::map<std::string, int64_t> depths;
  for (int row = 0; row < rows.rows(); ++row) depths[rows.Text(row, 0)] = rows.Int(row, 1);
  return depths;
}

absl::StatusOr<EnqueueResult> PostgresStore::Enqueue(int32_t queue, std::span<const NewJob> jobs) {
  Params params;
  params.Add(queue);
  AddJobs(params, jobs, [](const NewJob& job) -> const NewJob& { return job; });
  AddGates(params, jobs, [](const NewJob& job) -> const NewJob& { return job; });
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("enqueue", sql::kEnqueue, params));
  EnqueueResult result;
  result.jobs.resize(jobs.size());
  const int id = rows.Column("id"), day = rows.Column("day"), due_in = rows.Column("due_in"),
            gate = rows.Column("gate");
  for (int row = 0; row < rows.rows(); ++row) {
    EnqueueOutcome& outcome = result.jobs[static_cast<size_t>(row)];
    outcome.id = {queue, rows.Int32(row, day), rows.Int(row, id)};
    outcome.state = StateOf(rows, row, due_in, gate);
    if (outcome.state == JobState::kBlocked) NoteBlocked(jobs[static_cast<size_t>(row)], result.blocked);
  }
  NoteRows(rows, queue, result);
  return result;
}

absl::StatusOr<EnqueueResult> PostgresStore::EnqueueKeyedScoped(Transaction& tx, int32_t queue, int16_t scope,
                                                                std::span<const NewJob* const> jobs,
                                                                std::span<const std::string> keys,
                                                                std::span<const std::string> fingerprints,
                                                                std::span<const std::string> retry_of, bool commit) {
  EnqueueResult result;
  result.jobs.resize(jobs.size());
  Params params;
  params.Add(queue);
  AddJobs(params, jobs, [](const NewJob* job) -> const NewJob& { return *job; });
  params.Add(scope)
      .AddArray(keys)
      .AddArray(jobs, [](const NewJob* job) { return absl::ToInt64Microseconds(job->idempotency_retention); })
      .AddByteaArray(fingerprints, [](const std::string& f) { return std::string_view(f); })
      .AddArray(retry_of, [](const std::string& r) { return NonEmpty(r); });
  AddGates(params, jobs, [](const NewJob* job) -> const NewJob& { return *job; });
  TENURE_ASSIGN_OR_RETURN(Result rows, tx.Run(sql::kEnqueueKeyed, params));
  NoteRows(rows, queue, result);
  std::vector<bool> won(jobs.size());
  const int ord = rows.Column("ord"), id = rows.Column("id"), day = rows.Column("day"), due_in = rows.Column("due_in"),
            gate = rows.Column("gate");
  for (int row = 0; row < rows.rows(); ++row) {
    const size_t at = static_cast<size_t>(rows.Int(row, ord) - 1);
    won[at] = true;
    result.jobs[at].id = {queue, rows.Int32(row, day), rows.Int(row, id)};
    result.jobs[at].state = StateOf(rows, row, due_in, gate);
    if (result.jobs[at].state == JobState::kBlocked) NoteBlocked(*jobs[at], result.blocked);
  }
  std::vector<std::string> lost;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!won[i]) lost.push_back(keys[i]);
  }
  if (!lost.empty()) {
    TENURE_ASSIGN_OR_RETURN(Result found, tx.Run(sql::kFindKeys, Params().Add(queue).Add(scope).AddArray(lost)));
    std::map<std::string_view, int> by_key;
    for (int row = 0; row < found.rows(); ++row) by_key[found.Bytes(row, 0)] = row;
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (won[i]) continue;
      EnqueueOutcome& outcome = result.jobs[i];
      auto row = by_key.find(keys[i]);
      if (row == by_key.end()) {
        // Pruned between the two statements.
        outcome.status = MakeError(absl::StatusCode::kUnavailable, "KEY_BUSY",
                                   "the idempotency key is changing; try again", {}, absl::Milliseconds(50));
        continue;
      }
      outcome.id = {queue, found.Int32(row->second, 2), found.Int(row->second, 1)};
      outcome.duplicate = true;
      if (found.Bytes(row->second, 3) != fingerprints[i]) {
        outcome.status =
            MakeError(absl::StatusCode::kAlreadyExists, "IDEMPOTENCY_CONFLICT",
                      "idempotency_key: was used for a job with other content; use another key, or the same content",
                      {{"field", "idempotency_key"}, {"job_id", outcome.id.ToString()}});
      }
    }
  }
  if (commit) TENURE_RETURN_IF_ERROR(tx.Commit());
  return result;
}

absl::StatusOr<EnqueueResult> PostgresStore::EnqueueKeyed(int32_t queue, std::span<const NewJob> jobs) {
  EnqueueResult result;
  result.jobs.resize(jobs.size());
  std::vector<std::string> fingerprints(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) fingerprints[i] = Fingerprint(jobs[i]);
  // Distinct keys, sorted: every transaction locks them in the same order. A second use of a key in the batch is a
  // duplicate of the first.
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return jobs[a].idempotency_key < jobs[b].idempotency_key; });
  std::vector<size_t> firsts;
  std::map<size_t, size_t> repeats;
  for (size_t at : order) {
    if (!firsts.empty() && jobs[firsts.back()].idempotency_key == jobs[at].idempotency_key) {
      repeats[at] = firsts.back();
    } else {
      firsts.push_back(at);
    }
  }

  // A key that another transaction holds uncommitted makes the statement run into lock_timeout; halving isolates it.
  std::function<absl::Status(std::span<const size_t>)> run = [&](std::span<const size_t> part) -> absl::Status {
    std::vector<const NewJob*> part_jobs;
    std::vector<std::string> keys, prints, retry_of;
    for (size_t at : part) {
      part_jobs.push_back(&jobs[at]);
      keys.push_back(jobs[at].idempotency_key);
      prints.push_back(fingerprints[at]);
      retry_of.emplace_back();
    }
    auto done = Run<EnqueueResult>(
        "enqueue_keyed", Transaction::Limits{options_.statement_timeout, kKeyWait},
        [&](Transaction& tx) { return EnqueueKeyedScoped(tx, queue, 0, part_jobs, keys, prints, retry_of, true); });
    if (!done.ok()) {
      if (SqlStateOf(done.status()) != "55P03") return done.status();
      Metrics::Add(metrics_.db_retries, {{"reason", "lock_timeout"}});
      if (part.size() == 1) {
        result.jobs[part[0]].status =
            MakeError(absl::StatusCode::kUnavailable, "KEY_BUSY",
                      "idempotency_key: another transaction has used it and not committed yet; try again",
                      {{"field", "idempotency_key"}}, absl::Milliseconds(200));
        return absl::OkStatus();
      }
      TENURE_RETURN_IF_ERROR(run(part.first(part.size() / 2)));
      return run(part.subspan(part.size() / 2));
    }
    for (size_t i = 0; i < part.size(); ++i) result.jobs[part[i]] = std::move(done->jobs[i]);
    result.ready.insert(result.ready.end(), done->ready.begin(), done->ready.end());
    result.blocked.insert(result.blocked.end(), done->blocked.begin(), done->blocked.end());
    if (done->earliest_due && (!result.earliest_due || *done->earliest_due < *result.earliest_due)) {
      result.earliest_due = done->earliest_due;
    }
    // Only one transaction can be told apart from others' later; more are simply read back as events.
    result.xid = part.size() == firsts.size() ? done->xid : 0;
    return absl::OkStatus();
  };
  if (!firsts.empty()) TENURE_RETURN_IF_ERROR(run(firsts));

  for (const auto& [at, first] : repeats) {
    EnqueueOutcome& outcome = result.jobs[at];
    outcome = result.jobs[first];
    outcome.duplicate = true;
    if (outcome.status.ok() && fingerprints[at] != fingerprints[first]) {
      outcome.status = MakeError(absl::StatusCode::kAlreadyExists, "IDEMPOTENCY_CONFLICT",
                                 "idempotency_key: appears twice in this call with different jobs",
                                 {{"field", "idempotency_key"}, {"job_id", outcome.id.ToString()}});
    }
  }
  return result;
}

absl::StatusOr<Job> PostgresStore::Get(const JobId& id) {
  const std::vector<int64_t> ids{id.seq};
  std::optional<Job> job;
  int32_t payload_day = -1;
  // First the live row, then, with a later snapshot, what has ended: a job that moves in between is seen by the second.
  TENURE_ASSIGN_OR_RETURN(Result live, RunOne("find_live", sql::kFindLive, Params().Add(id.queue).AddArray(ids)));
  if (live.rows() > 0) {
    JobReader reader(live);
    job = reader.Read(0);
    payload_day = reader.PayloadDay(0);
  } else {
    TENURE_ASSIGN_OR_RETURN(Result ended,
                            RunOne("find_ended", sql::kFindEnded, Params().Add(id.seq).Add(id.day - kDaysTo2000)));
    if (ended.rows() > 0) {
      JobReader reader(ended);
      job = reader.Read(0);
      payload_day = reader.PayloadDay(0);
    }
    // Only these two can have been moved.
    if (job && (job->state == JobState::kCancelled || job->state == JobState::kDiscarded)) {
      TENURE_ASSIGN_OR_RETURN(const Result forward,
                              RunOne("find_forward", sql::kFindForward, Params().Add(id.seq).Add(id.queue)));
      if (forward.rows() > 0) job->forwarded_to = forward.Text(0, 0);
    }
  }
  if (!job || job->id != id) {
    return MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                     absl::StrCat("there is no job ", id.ToString(), ": it never existed, or its history has expired"),
                     {{"job_id", id.ToString()}});
  }
  Job* wanted = &*job;
  TENURE_RETURN_IF_ERROR(FetchPayloads({&wanted, 1}, {&payload_day, 1}));
  return std::move(*job);
}

absl::StatusOr<std::vector<JobId>> PostgresStore::Ended(std::span<const JobId> ids) {
  std::map<int32_t, std::vector<JobId>> by_queue;
  for (const JobId& id : ids) by_queue[id.queue].push_back(id);
  std::vector<JobId> ended;
  for (const auto& [queue, of_queue] : by_queue) {
    Params params;
    params.Add(queue).AddArray(of_queue, [](const JobId& id) { return id.seq; });
    TENURE_ASSIGN_OR_RETURN(Result live, RunOne("resolve_live", sql::kResolveLive, params));
    std::set<int64_t> alive;
    for (int row = 0; row < live.rows(); ++row) alive.insert(live.Int(row, 0));
    for (const JobId& id : of_queue) {
      if (!alive.contains(id.seq)) ended.push_back(id);
    }
  }
  return ended;
}

absl::StatusOr<CancelResult> PostgresStore::Cancel(int32_t queue, std::span<const JobId> ids, std::string_view reason) {
  std::map<int64_t, int32_t>
      days;  // One id, one day: of two spellings at most one is right, and the other is not found.
  int32_t earliest = std::numeric_limits<int32_t>::max();
  for (const JobId& id : ids) {
    days.try_emplace(id.seq, id.day);
    earliest = std::min(earliest, id.day);
  }
  std::vector<int64_t> seqs;
  for (const auto& [seq, unused] : days) seqs.push_back(seq);
  std::map<int64_t, CancelOutcome> outcomes;
  TENURE_ASSIGN_OR_RETURN(Result done, RunOne("cancel", sql::kCancel,
                                              Params().Add(queue).AddArray(seqs).Add(reason).AddArray(
                                                  days, [](const auto& d) { return d.second; })));
  GateNames freed;
  const GateReader gates(done);
  for (int row = 0; row < done.rows(); ++row) {
    CancelOutcome& outcome = outcomes[done.Int(row, 0)];
    outcome.state = CancelOutcome::State::kCancelled;
    outcome.previous = static_cast<JobState>(done.Int(row, 1));
    gates.Add(row, freed);
    outcome.worker = done.Text(row, 2);
    outcome.number = done.Int32(row, 3);
  }
  std::erase_if(seqs, [&](int64_t seq) { return outcomes.contains(seq); });
  if (!seqs.empty()) {
    TENURE_ASSIGN_OR_RETURN(Result live, RunOne("resolve_live", sql::kResolveLive, Params().Add(queue).AddArray(seqs)));
    const int live_day = live.Column("day");
    for (int row = 0; row < live.rows(); ++row) {
      if (live.Int32(row, live_day) == days.at(live.Int(row, 0))) {
        outcomes[live.Int(row, 0)].state = CancelOutcome::State::kLocked;
      }
    }
    TENURE_ASSIGN_OR_RETURN(
        Result ended, RunOne("resolve_ended", sql::kResolveEnded, Params().AddArray(seqs).Add(earliest - kDaysTo2000)));
    const int ended_queue = ended.Column("queue_id"), ended_day = ended.Column("day");
    for (int row = 0; row < ended.rows(); ++row) {
      if (ended.Int32(row, ended_queue) != queue || ended.Int32(row, ended_day) != days.at(ended.Int(row, 0))) continue;
      CancelOutcome& outcome = outcomes[ended.Int(row, 0)];
      outcome.previous = static_cast<JobState>(ended.Int(row, 1));
      // Cancelling a cancelled job is a repeat of the same call.
      outcome.state = outcome.previous == JobState::kCancelled ? CancelOutcome::State::kCancelled
                                                               : CancelOutcome::State::kAlreadyEnded;
    }
  }
  CancelResult result;
  result.freed = std::move(freed);
  for (const JobId& id : ids) {
    auto outcome = outcomes.find(id.seq);
    if (outcome == outcomes.end() || days.at(id.seq) != id.day) {
      result.items.emplace_back();
      result.items.back().state = CancelOutcome::State::kNotFound;
    } else {
      result.items.push_back(outcome->second);
    }
  }
  return result;
}

absl::StatusOr<RetryOutcome> PostgresStore::Retry(const JobId& id, std::string_view request_id) {
  const std::vector<int64_t> ids{id.seq};
  RetryOutcome outcome;
  TENURE_ASSIGN_OR_RETURN(Result due, RunOne("due_now", sql::kDueNow, Params().Add(id.queue).Add(id.seq).Add(id.day)));
  if (due.rows() > 0) {
    outcome.id = id;
    if (static_cast<JobState>(due.Int(0, 1)) == JobState::kBlocked) {
      GateReader(due).Add(0, outcome.blocked);
      outcome.blocked.emplace_back("q");
    }
    return outcome;
  }
  TENURE_ASSIGN_OR_RETURN(Result live, RunOne("find_live", sql::kFindLive, Params().Add(id.queue).AddArray(ids)));
  if (live.rows() > 0 && JobReader(live).Read(0).id == id) {
    const JobState state = JobReader(live).Read(0).state;
    if (state == JobState::kScheduled) {
      outcome.status =
          MakeError(absl::StatusCode::kUnavailable, "JOB_LOCKED", "another transaction holds the job; try again",
                    {{"job_id", id.ToString()}}, absl::Milliseconds(200));
    } else {
      outcome.status = MakeError(
          absl::StatusCode::kFailedPrecondition, "NOT_RETRYABLE",
          "the job is ready, blocked, suspended or leased: it will run; only scheduled and ended jobs can be retried",
          {{"job_id", id.ToString()}});
    }
    return outcome;
  }
  TENURE_ASSIGN_OR_RETURN(Result ended,
                          RunOne("find_ended", sql::kFindEnded, Params().Add(id.seq).Add(id.day - kDaysTo2000)));
  if (ended.rows() == 0 || JobReader(ended).Read(0).id != id) {
    outcome.status =
        MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                  absl::StrCat("there is no job ", id.ToString(), ": it never existed, or its history has expired"),
                  {{"job_id", id.ToString()}});
    return outcome;
  }
  JobReader reader(ended);
  Job old = reader.Read(0);
  Job* wanted = &old;
  const int32_t day = reader.PayloadDay(0);
  TENURE_RETURN_IF_ERROR(FetchPayloads({&wanted, 1}, {&day, 1}));
  NewJob again;
  again.kind = old.kind;
  again.payload = old.payload;
  again.headers = old.headers;
  again.priority = old.priority;
  again.tenant = old.tenant;
  if (old.max_attempts > 0) again.max_attempts = old.max_attempts;
  if (old.crash_budget > 0) again.crash_budget = old.crash_budget;
  again.backoff = old.backoff;
  again.effect_key = old.effect_key;
  again.concurrency_keys = old.concurrency_keys;
  again.group = old.group;
  // Without a request id each call makes a job of its own: the key is then one that nobody can repeat.
  const std::string key = request_id.empty() ? absl::StrCat("once/", Secrets(1)[0], "/", Secrets(1)[0])
                                             : absl::StrCat("retry/", id.ToString(), "/", std::string(request_id));
  const std::vector<const NewJob*> jobs{&again};
  const std::vector<std::string> keys{key}, prints{Fingerprint(again)}, retry_of{id.ToString()};
  auto made = Run<EnqueueResult>("retry", [&](Transaction& tx) {
    return EnqueueKeyedScoped(tx, id.queue, 1, jobs, keys, prints, retry_of, true);
  });
  if (!made.ok()) return made.status();
  outcome.status = made->jobs[0].status;
  outcome.id = made->jobs[0].id;
  outcome.blocked = std::move(made->blocked);
  return outcome;
}

}  // namespace tenure::store::postgres
