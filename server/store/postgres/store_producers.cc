// PostgresStore: what producers and operators ask of single jobs.
#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/fingerprint.h"
#include "server/store/postgres/job_params.h"
#include "server/store/postgres/named_enqueue.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

constexpr int32_t kDaysTo2000 = 10957;  // PostgreSQL's date counts from 2000-01-01.
constexpr int16_t kProducerScope = 0;   // Of the keys that producers give.
constexpr int16_t kRetryScope = 1;      // Of the keys that make retries safe to repeat.

std::string RetryKey(const JobId& id, std::string_view request_id) {
  return absl::StrCat("retry/", id.ToString(), "/", std::string(request_id));
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

absl::StatusOr<std::vector<bool>> PostgresStore::MakeNone(int32_t queue, std::span<const NewJob* const> jobs) {
  std::set<std::string> keys;
  for (const NewJob* job : jobs) {
    if (!job->idempotency_key.empty()) keys.insert(job->idempotency_key);
  }
  return Run<std::vector<bool>>("make_none", [&](Transaction& tx) -> absl::StatusOr<std::vector<bool>> {
    TENURE_ASSIGN_OR_RETURN(std::vector<bool> none, NamedEnqueue::Held(tx, queue, jobs));
    if (keys.empty()) return none;
    TENURE_ASSIGN_OR_RETURN(const Result rows,
                            tx.Run(sql::kFindKeys, Params().Add(queue).Add(kProducerScope).AddArray(keys)));
    std::set<std::string> in_use;
    const int key = rows.Column("key"), live = rows.Column("live");
    for (int row = 0; row < rows.rows(); ++row) {
      if (rows.Bool(row, live)) in_use.insert(rows.Text(row, key));
    }
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (in_use.contains(jobs[i]->idempotency_key)) none[i] = true;
    }
    return none;
  });
}

absl::StatusOr<EnqueueResult> PostgresStore::Enqueue(int32_t queue, std::span<const NewJob> jobs) {
  if (std::all_of(jobs.begin(), jobs.end(), IsPlain)) return EnqueuePlain(queue, jobs);
  Params params;
  params.Add(queue);
  AddJobs(params, jobs, [](const NewJob& job) -> const NewJob& { return job; });
  AddGates(params, jobs, [](const NewJob& job) -> const NewJob& { return job; });
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("enqueue", sql::kEnqueue, params));
  EnqueueResult result;
  result.jobs.resize(jobs.size());
  const AcceptedReader accepted(rows);
  for (int row = 0; row < rows.rows(); ++row) {
    EnqueueOutcome& outcome = result.jobs[static_cast<size_t>(row)];
    outcome.id = accepted.IdOf(row, queue);
    outcome.state = accepted.StateOf(row);
    if (outcome.state == JobState::kBlocked) NoteBlocked(jobs[static_cast<size_t>(row)], result.blocked);
  }
  accepted.Note(queue, result);
  return result;
}

absl::StatusOr<EnqueueResult> PostgresStore::EnqueuePlain(int32_t queue, std::span<const NewJob> jobs) {
  Params params;
  params.Add(queue);
  AddPlain(params, jobs, [](const NewJob& job) -> const NewJob& { return job; });
  TENURE_ASSIGN_OR_RETURN(const Result rows, RunOne("enqueue", sql::kEnqueuePlain, params));
  const std::vector<int64_t> ids = rows.IntArray(0, rows.Column("ids"));
  const int32_t day = rows.Int32(0, rows.Column("day"));
  const bool blocked = !rows.IsNull(0, rows.Column("gate"));
  EnqueueResult result;
  result.xid = static_cast<uint64_t>(rows.Int(0, rows.Column("xid")));
  result.jobs.resize(jobs.size());
  std::map<int16_t, ReadyRange> ready;
  for (size_t i = 0; i < jobs.size(); ++i) {
    result.jobs[i].id = {queue, day, ids[i]};
    result.jobs[i].state = blocked ? JobState::kBlocked : JobState::kReady;
    if (!blocked) AddToRange(ready, queue, jobs[i].priority, {0, ids[i]});
  }
  if (blocked) NoteBlocked(jobs[0], result.blocked);
  for (const auto& [unused, range] : ready) result.ready.push_back(range);
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
  const AcceptedReader accepted(rows);
  accepted.Note(queue, result);
  std::vector<bool> won(jobs.size());
  const int ord = rows.Column("ord");
  for (int row = 0; row < rows.rows(); ++row) {
    const size_t at = static_cast<size_t>(rows.Int(row, ord) - 1);
    won[at] = true;
    result.jobs[at].id = accepted.IdOf(row, queue);
    result.jobs[at].state = accepted.StateOf(row);
    if (result.jobs[at].state == JobState::kBlocked) NoteBlocked(*jobs[at], result.blocked);
  }
  std::vector<std::string> lost;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!won[i]) lost.push_back(keys[i]);
  }
  if (!lost.empty()) {
    TENURE_ASSIGN_OR_RETURN(const KnownKeys known, KnownKeys::Read(tx, queue, scope, lost));
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (!won[i]) result.jobs[i] = known.Answer(keys[i], fingerprints[i]);
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
  // Distinct keys, in the order of the items. A second use of a key in the batch is a duplicate of the first.
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
  std::sort(firsts.begin(), firsts.end());

  const auto write = [&](std::span<const size_t> part) -> absl::Status {
    std::vector<const NewJob*> part_jobs;
    std::vector<std::string> keys, prints, retry_of;
    for (size_t at : part) {
      part_jobs.push_back(&jobs[at]);
      keys.push_back(jobs[at].idempotency_key);
      prints.push_back(fingerprints[at]);
      retry_of.emplace_back();
    }
    auto done = Run<EnqueueResult>(
        "enqueue_keyed", Transaction::Limits{options_.statement_timeout, kKeyWait}, [&](Transaction& tx) {
          return EnqueueKeyedScoped(tx, queue, kProducerScope, part_jobs, keys, prints, retry_of, true);
        });
    if (!done.ok()) return done.status();
    MergePart(part, part.size() == firsts.size(), *std::move(done), result);
    return absl::OkStatus();
  };
  TENURE_RETURN_IF_ERROR(
      SplitOnLockTimeout(firsts, write, [&](size_t at) { result.jobs[at].status = IdempotencyKeyBusy(); }));

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
      TENURE_ASSIGN_OR_RETURN(const std::vector<JobId> now, WhereNow({&id, 1}));
      if (now[0] != id) job->forwarded_to = now[0].ToString();
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
  TENURE_ASSIGN_OR_RETURN(const std::vector<JobId> now, WhereNow({&id, 1}));
  if (now[0] != id) {
    // A retry of the job before it was moved may have been answered already: its repeat gets the same answer.
    if (!request_id.empty()) {
      const std::vector<std::string> keys{RetryKey(id, request_id)};
      TENURE_ASSIGN_OR_RETURN(const Result known, RunOne("find_keys", sql::kFindKeys,
                                                         Params().Add(id.queue).Add(kRetryScope).AddArray(keys)));
      if (known.rows() > 0) {
        outcome.id = {id.queue, known.Int32(0, 2), known.Int(0, 1)};
        return outcome;
      }
    }
    return Retry(now[0], request_id);
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
  if (!old.unique_key.empty()) {
    again.unique =
        Unique{old.unique_key, old.unique_by_kind, AllLiveStates(), absl::ZeroDuration(), OnConflict::kReject};
  }
  // Without a request id each call makes a job of its own: the key is then one that nobody can repeat.
  const std::string key =
      request_id.empty() ? absl::StrCat("once/", Secrets(1)[0], "/", Secrets(1)[0]) : RetryKey(id, request_id);
  const std::vector<const NewJob*> jobs{&again};
  const std::vector<std::string> keys{key}, prints{Fingerprint(again)}, retry_of{id.ToString()};
  auto made = again.unique ? Run<EnqueueResult>(
                                 "retry", Transaction::Limits{options_.statement_timeout, kKeyWait},
                                 [&](Transaction& tx) -> absl::StatusOr<EnqueueResult> {
                                   const std::vector<NamedItem> items{{&again, key, prints[0], retry_of[0], id.seq}};
                                   TENURE_ASSIGN_OR_RETURN(EnqueueResult done,
                                                           NamedEnqueue(tx, id.queue, kRetryScope).Write(items));
                                   TENURE_RETURN_IF_ERROR(tx.Commit());
                                   return done;
                                 })
                           : Run<EnqueueResult>("retry", [&](Transaction& tx) {
                               return EnqueueKeyedScoped(tx, id.queue, kRetryScope, jobs, keys, prints, retry_of, true);
                             });
  if (SqlStateOf(made.status()) == "55P03") {
    outcome.status = UniqueKeyBusy();
    return outcome;
  }
  if (!made.ok()) return made.status();
  outcome.status = made->jobs[0].status;
  outcome.id = made->jobs[0].id;
  outcome.blocked = std::move(made->blocked);
  return outcome;
}

}  // namespace tenure::store::postgres
