#include "server/store/postgres/named_enqueue.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/job_params.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

bool Replaces(OnConflict policy) {
  return policy == OnConflict::kReplace || policy == OnConflict::kReplaceAndReschedule;
}
bool Reschedules(OnConflict policy) {
  return policy == OnConflict::kReschedule || policy == OnConflict::kReplaceAndReschedule;
}

absl::Status ConflictWith(const JobId& holder) {
  return MakeError(absl::StatusCode::kAlreadyExists, "UNIQUE_CONFLICT",
                   absl::StrCat("unique.key: job ", holder.ToString(), " holds it"),
                   {{"field", "unique.key"}, {"job_id", holder.ToString()}});
}

}  // namespace

absl::StatusOr<KnownKeys> KnownKeys::Read(Transaction& tx, int32_t queue, int16_t scope,
                                          std::span<const std::string> keys) {
  KnownKeys known;
  known.queue_ = queue;
  TENURE_ASSIGN_OR_RETURN(known.rows_, tx.Run(sql::kFindKeys, Params().Add(queue).Add(scope).AddArray(keys)));
  for (int row = 0; row < known.rows_.rows(); ++row) known.by_key_[known.rows_.Text(row, 0)] = row;
  return known;
}

EnqueueOutcome KnownKeys::Answer(const std::string& key, const std::string& fingerprint) const {
  EnqueueOutcome outcome;
  const auto row = by_key_.find(key);
  if (row == by_key_.end()) {
    // Pruned between the two statements.
    outcome.status = MakeError(absl::StatusCode::kUnavailable, "KEY_BUSY", "the idempotency key is changing; try again",
                               {}, absl::Milliseconds(50));
    return outcome;
  }
  outcome.id = {queue_, rows_.Int32(row->second, 2), rows_.Int(row->second, 1)};
  outcome.duplicate = true;
  outcome.existing = rows_.Bool(row->second, 4);
  if (rows_.Bytes(row->second, 3) != fingerprint) {
    outcome.status =
        MakeError(absl::StatusCode::kAlreadyExists, "IDEMPOTENCY_CONFLICT",
                  "idempotency_key: was used for a job with other content; use another key, or the same content",
                  {{"field", "idempotency_key"}, {"job_id", outcome.id.ToString()}});
  }
  return outcome;
}

const std::vector<JobState>& AllLiveStates() {
  static const std::vector<JobState> states{JobState::kScheduled, JobState::kBlocked, JobState::kReady,
                                            JobState::kLeased, JobState::kSuspended};
  return states;
}

absl::Status UniqueKeyBusy() {
  return MakeError(
      absl::StatusCode::kUnavailable, "KEY_BUSY",
      "another transaction has used the unique or the idempotency key, or has changed the job that holds it, "
      "and not committed yet; try again",
      {{"field", "unique.key"}}, absl::Milliseconds(200));
}

absl::Status IdempotencyKeyBusy() {
  return MakeError(absl::StatusCode::kUnavailable, "KEY_BUSY",
                   "idempotency_key: another transaction has used it and not committed yet; try again",
                   {{"field", "idempotency_key"}}, absl::Milliseconds(200));
}

std::string UniqueName(const NewJob& job) {
  return job.unique->by_kind ? absl::StrCat("k:", job.kind, " ", job.unique->key) : absl::StrCat("q:", job.unique->key);
}

void MergePart(std::span<const size_t> part, bool whole, EnqueueResult done, EnqueueResult& result) {
  for (size_t i = 0; i < part.size(); ++i) result.jobs[part[i]] = std::move(done.jobs[i]);
  result.ready.insert(result.ready.end(), done.ready.begin(), done.ready.end());
  result.blocked.insert(result.blocked.end(), done.blocked.begin(), done.blocked.end());
  if (done.earliest_due && (!result.earliest_due || *done.earliest_due < *result.earliest_due)) {
    result.earliest_due = done.earliest_due;
  }
  // Only one transaction can be told apart from others' later; more are simply read back as events.
  result.xid = whole ? done.xid : 0;
}

absl::Status NamedEnqueue::Lock(std::span<const NewJob* const> jobs) {
  for (const NewJob* job : jobs) {
    if (!job->unique) continue;
    names_.push_back(UniqueName(*job));
    const OnConflict policy = job->unique->on_conflict;
    if (Replaces(policy) || Reschedules(policy)) changing_.insert(names_.back());
  }
  return LockNames();
}

absl::StatusOr<EnqueueResult> NamedEnqueue::Write(std::span<const NamedItem> items) {
  items_ = items;
  result_.jobs.resize(items.size());
  TENURE_RETURN_IF_ERROR(TakeKeys());
  for (size_t at : open_) {
    if (!items_[at].job->unique) continue;
    names_.push_back(UniqueName(*items_[at].job));
    const OnConflict policy = items_[at].job->unique->on_conflict;
    if (Replaces(policy) || Reschedules(policy)) changing_.insert(names_.back());
  }
  TENURE_RETURN_IF_ERROR(LockNames());
  if (!open_.empty()) {
    TENURE_RETURN_IF_ERROR(ReadHolders());
    for (size_t at : open_) Decide(at);
    TENURE_RETURN_IF_ERROR(WriteKeys());
    TENURE_RETURN_IF_ERROR(WriteChanges());
    TENURE_RETURN_IF_ERROR(WriteJobs());
  }
  for (const auto& [at, first] : repeats_) {
    EnqueueOutcome& outcome = result_.jobs[at];
    outcome = result_.jobs[first];
    outcome.duplicate = true;
    if (outcome.status.ok() && items_[at].fingerprint != items_[first].fingerprint) {
      outcome.status = MakeError(absl::StatusCode::kAlreadyExists, "IDEMPOTENCY_CONFLICT",
                                 "idempotency_key: appears twice in this call with different jobs",
                                 {{"field", "idempotency_key"}, {"job_id", outcome.id.ToString()}});
    }
  }
  return std::move(result_);
}

absl::Status NamedEnqueue::TakeKeys() {
  std::vector<size_t> order(items_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return items_[a].key < items_[b].key; });
  std::vector<size_t> firsts;
  for (size_t at : order) {
    if (items_[at].key.empty()) continue;
    if (!firsts.empty() && items_[firsts.back()].key == items_[at].key) {
      repeats_[at] = firsts.back();
    } else {
      firsts.push_back(at);
    }
  }
  std::set<std::string> won;
  if (!firsts.empty()) {
    Params params;
    params.Add(queue_)
        .Add(scope_)
        .AddArray(firsts, [&](size_t at) { return std::string_view(items_[at].key); })
        .AddByteaArray(firsts, [&](size_t at) { return std::string_view(items_[at].fingerprint); })
        .AddArray(firsts, [&](size_t at) { return absl::ToInt64Microseconds(items_[at].job->idempotency_retention); });
    TENURE_ASSIGN_OR_RETURN(const Result rows, tx_.Run(sql::kTakeKeys, params));
    for (int row = 0; row < rows.rows(); ++row) won.insert(rows.Text(row, 0));
  }
  std::vector<std::string> lost;
  for (size_t at : firsts) {
    if (won.contains(items_[at].key)) {
      taken_.push_back(at);
    } else {
      lost.push_back(items_[at].key);
    }
  }
  std::optional<KnownKeys> known;
  if (!lost.empty()) {
    TENURE_ASSIGN_OR_RETURN(known, KnownKeys::Read(tx_, queue_, scope_, lost));
  }
  for (size_t at = 0; at < items_.size(); ++at) {
    if (repeats_.contains(at)) continue;
    if (items_[at].key.empty() || won.contains(items_[at].key)) {
      open_.push_back(at);
    } else {
      result_.jobs[at] = known->Answer(items_[at].key, items_[at].fingerprint);
    }
  }
  return absl::OkStatus();
}

absl::Status NamedEnqueue::LockNames() {
  std::sort(names_.begin(), names_.end());
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  std::vector<std::string> fresh;
  std::copy_if(names_.begin(), names_.end(), std::back_inserter(fresh),
               [&](const std::string& name) { return !locked_.contains(name); });
  if (fresh.empty()) return absl::OkStatus();
  tx_.Queue(sql::kUniqueBegin, Params().Add(queue_).AddArray(fresh));
  TENURE_ASSIGN_OR_RETURN(const Result rows, tx_.Run(sql::kUniqueLock, Params().Add(queue_).AddArray(fresh)));
  // Pruned between the two: as if the transaction had lost a race.
  if (rows.rows() != static_cast<int>(fresh.size())) return FromSqlState("40001", "a unique key was pruned");
  locked_.insert(fresh.begin(), fresh.end());
  if (changing_.empty()) return absl::OkStatus();
  TENURE_ASSIGN_OR_RETURN(const Result held, tx_.Run(sql::kUniqueHold, Params().Add(queue_).AddArray(changing_)));
  for (int row = 0; row < held.rows(); ++row) changeable_.insert(held.Text(row, 0));
  return absl::OkStatus();
}

void NamedEnqueue::ReadHolder(const Result& rows, int row, int32_t queue, Holders& holders) {
  const int state = rows.Column("state");
  Holder& holder = holders[rows.Text(row, rows.Column("name"))];
  holder.id = {queue, rows.Int32(row, rows.Column("job_day")), rows.Int(row, rows.Column("job_id"))};
  if (!rows.IsNull(row, state)) holder.state = static_cast<JobState>(rows.Int(row, state));
  holder.held = rows.Bool(row, rows.Column("held"));
  holder.waits = rows.Bool(row, rows.Column("waits"));
  holder.gated = rows.Bool(row, rows.Column("gates"));
}

absl::StatusOr<std::vector<bool>> NamedEnqueue::Held(Transaction& tx, int32_t queue,
                                                     std::span<const NewJob* const> jobs) {
  std::set<std::string> names;
  for (const NewJob* job : jobs) {
    if (job->unique) names.insert(UniqueName(*job));
  }
  Holders holders;
  if (!names.empty()) {
    TENURE_ASSIGN_OR_RETURN(const Result rows,
                            tx.Run(sql::kUniqueHolders, Params().Add(queue).AddArray(names).Add(int32_t{0})));
    const int name = rows.Column("name");
    for (int row = 0; row < rows.rows(); ++row) {
      if (!rows.IsNull(row, name)) ReadHolder(rows, row, queue, holders);
    }
  }
  std::vector<bool> held;
  for (const NewJob* job : jobs) {
    held.push_back(job->unique && IsInTheWay(holders[UniqueName(*job)], *job->unique, /*changeable=*/true, 0));
  }
  return held;
}

absl::Status NamedEnqueue::ReadHolders() {
  TENURE_ASSIGN_OR_RETURN(
      const Result rows,
      tx_.Run(sql::kUniqueHolders, Params().Add(queue_).AddArray(names_).Add(static_cast<int32_t>(open_.size()))));
  const int name = rows.Column("name"), gates = rows.Column("gates");
  for (int row = 0; row < rows.rows(); ++row) {
    if (rows.IsNull(row, name)) {
      queue_gated_ = rows.Bool(row, gates);
      now_ = rows.Time(row, rows.Column("now"));
      today_ = rows.Int32(row, rows.Column("today"));
      ids_ = rows.IntArray(row, rows.Column("fresh"));
      // The smallest first: the order of ids is the order of the items.
      std::sort(ids_.begin(), ids_.end(), std::greater<>());
      continue;
    }
    ReadHolder(rows, row, queue_, holders_);
  }
  if (ids_.size() < open_.size()) {
    return MakeError(absl::StatusCode::kNotFound, "QUEUE_NOT_FOUND", "the queue is gone");
  }
  return absl::OkStatus();
}

JobState NamedEnqueue::StateAt(const NewJob& due, bool waits, bool gated) const {
  if (waits) return JobState::kBlocked;
  if ((due.due && *due.due > now_) || (due.delay && *due.delay > absl::ZeroDuration())) return JobState::kScheduled;
  return gated ? JobState::kBlocked : JobState::kReady;
}

void NamedEnqueue::Accept(size_t item) {
  const NewJob& job = *items_[item].job;
  fresh_.push_back({item, job, ids_.back()});
  ids_.pop_back();
  result_.jobs[item].id = {queue_, today_, fresh_.back().id};
  if (!job.unique) return;
  Holder& holder = holders_[UniqueName(job)];
  holder.id = result_.jobs[item].id;
  holder.waits = items_[item].waits;
  holder.gated = queue_gated_ || !job.concurrency_keys.empty() || !job.group.empty();
  holder.state = StateAt(job, holder.waits, holder.gated);
  holder.held = job.unique->period > absl::ZeroDuration();
  holder.fresh = fresh_.size() - 1;
  given_[UniqueName(job)] = job.unique->period;
}

// `changeable`: the holder may be changed now. One that has just come back from a worker counts as still with him, for
// a policy that would have to change it. `retries`: the job that the new one retries is no conflict.
bool NamedEnqueue::IsInTheWay(const Holder& holder, const Unique& unique, bool changeable, int64_t retries) {
  const bool changes = Replaces(unique.on_conflict) || Reschedules(unique.on_conflict);
  const bool counts = holder.state &&
                      std::find(unique.states.begin(), unique.states.end(), *holder.state) != unique.states.end() &&
                      (!changes || changeable);
  const bool in_period = holder.held && !changes && (holder.id.seq != retries || holder.state);
  return counts || in_period;
}

void NamedEnqueue::Decide(size_t item) {
  const NewJob& job = *items_[item].job;
  if (!job.unique) return Accept(item);
  const Unique& unique = *job.unique;
  const bool changes = Replaces(unique.on_conflict) || Reschedules(unique.on_conflict);
  Holder& holder = holders_[UniqueName(job)];
  const bool changeable = holder.fresh || changeable_.contains(UniqueName(job));
  if (!IsInTheWay(holder, unique, changeable, items_[item].retries)) return Accept(item);
  EnqueueOutcome& outcome = result_.jobs[item];
  if (unique.on_conflict == OnConflict::kReject) {
    outcome.status = ConflictWith(holder.id);
    return;
  }
  if (changes) ChangeHolder(holder, job);
  outcome.id = holder.id;
  outcome.existing = true;
  outcome.state = holder.state.value_or(JobState::kCompleted);
}

void NamedEnqueue::ChangeHolder(Holder& holder, const NewJob& with) {
  const OnConflict policy = with.unique->on_conflict;
  if (holder.fresh) {
    NewJob& job = fresh_[*holder.fresh].job;
    if (Replaces(policy)) {
      job.payload = with.payload;
      job.headers = with.headers;
    }
    if (Reschedules(policy)) {
      job.due = with.due;
      job.delay = with.delay;
      holder.state = StateAt(with, holder.waits, holder.gated);
    }
    return;
  }
  Change& change = changes_[holder.id.seq];
  if (Replaces(policy)) change.content = &with;
  if (!Reschedules(policy)) return;
  change.due = &with;
  const JobState at = StateAt(with, holder.waits, holder.gated);
  // What is ready or blocked and due stays as it is.
  if (at == JobState::kScheduled || holder.state == JobState::kScheduled) holder.state = at;
}

absl::Status NamedEnqueue::WriteKeys() {
  if (!given_.empty()) {
    Params params;
    params.Add(queue_)
        .AddArray(given_, [](const auto& g) { return std::string_view(g.first); })
        .AddArray(given_, [&](const auto& g) { return holders_[g.first].id.seq; })
        .AddArray(given_, [&](const auto& g) { return holders_[g.first].id.day; })
        .AddArray(given_, [](const auto& g) { return absl::ToInt64Microseconds(g.second); });
    tx_.Queue(sql::kUniqueSet, params);
  }
  if (!taken_.empty()) {
    auto outcome = [&](size_t at) -> const EnqueueOutcome& { return result_.jobs[at]; };
    Params params;
    params.Add(queue_)
        .Add(scope_)
        .AddArray(taken_, [&](size_t at) { return std::string_view(items_[at].key); })
        .AddArray(taken_, [&](size_t at) { return outcome(at).status.ok() ? outcome(at).id.seq : int64_t{0}; })
        .AddArray(taken_, [&](size_t at) { return outcome(at).id.day; })
        .AddArray(taken_, [&](size_t at) { return outcome(at).existing; });
    tx_.Queue(sql::kGiveKeys, params);
  }
  return absl::OkStatus();
}

absl::Status NamedEnqueue::WriteChanges() {
  if (changes_.empty()) return absl::OkStatus();
  std::vector<std::string> headers;
  for (const auto& [unused, change] : changes_) {
    headers.push_back(!change.content || change.content->headers.empty() ? "" : ToJson(change.content->headers));
  }
  Params params;
  params.Add(queue_)
      .AddArray(changes_, [](const auto& c) { return c.first; })
      .AddArray(changes_, [](const auto& c) { return c.second.content != nullptr; })
      .AddByteaArray(
          changes_,
          [](const auto& c) { return c.second.content ? std::string_view(c.second.content->payload.data) : ""; })
      .AddArray(changes_,
                [](const auto& c) {
                  return c.second.content ? NonEmpty(c.second.content->payload.content_type) : std::nullopt;
                })
      .AddArray(headers, [](const std::string& h) { return NonEmpty(h); })
      .AddArray(changes_, [](const auto& c) { return c.second.due != nullptr; })
      .AddArray(changes_, [](const auto& c) { return c.second.due ? c.second.due->due : std::nullopt; })
      .AddArray(changes_, [](const auto& c) { return c.second.due ? Micros(c.second.due->delay) : std::nullopt; })
      .AddArray(changes_, [](const auto& c) { return c.second.due ? c.second.due->expires : std::nullopt; })
      .AddArray(changes_, [](const auto& c) { return c.second.due ? Micros(c.second.due->ttl) : std::nullopt; });
  TENURE_ASSIGN_OR_RETURN(const Result rows, tx_.Run(sql::kUniqueChange, params));
  const int id = rows.Column("id"), state = rows.Column("state"), to = rows.Column("to_state"),
            priority = rows.Column("priority"), rank = rows.Column("rank"), due_in = rows.Column("due_in"),
            xid = rows.Column("xid");
  const GateReader gates(rows);
  std::map<int16_t, ReadyRange> ready;
  for (int row = 0; row < rows.rows(); ++row) {
    result_.xid = static_cast<uint64_t>(rows.Int(row, xid));
    const auto from = static_cast<JobState>(rows.Int(row, state)), now = static_cast<JobState>(rows.Int(row, to));
    if (now == JobState::kScheduled) {
      const absl::Duration from_now = absl::Seconds(rows.Double(row, due_in));
      if (!result_.earliest_due || from_now < *result_.earliest_due) result_.earliest_due = from_now;
    }
    if (from == now) continue;
    if (now == JobState::kReady) {
      AddToRange(ready, queue_, static_cast<int16_t>(rows.Int(row, priority)),
                 {rows.Int(row, rank), rows.Int(row, id)});
    } else {
      // Either its slots are free, or it waits at its first gate.
      gates.Add(row, result_.blocked);
      result_.blocked.emplace_back("q");
    }
  }
  for (const auto& [unused, range] : ready) result_.ready.push_back(range);
  return absl::OkStatus();
}

absl::Status NamedEnqueue::WriteJobs() {
  if (fresh_.empty()) return absl::OkStatus();
  auto job = [](const Fresh& fresh) -> const NewJob& { return fresh.job; };
  std::vector<std::string> names;
  for (const Fresh& fresh : fresh_) names.push_back(fresh.job.unique ? UniqueName(fresh.job) : std::string());
  Params params;
  params.Add(queue_);
  AddJobs(params, fresh_, job);
  AddGates(params, fresh_, job);
  params
      .AddArray(fresh_, [](const Fresh& f) { return f.id; })
      // Keys of the second scope are the daemon's own.
      .AddArray(fresh_, [&](const Fresh& f) { return scope_ == 0 ? NonEmpty(items_[f.item].key) : std::nullopt; })
      .AddArray(names, [](const std::string& name) { return NonEmpty(name); })
      .AddArray(fresh_, [&](const Fresh& f) { return NonEmpty(items_[f.item].retry_of); })
      .AddArray(fresh_, [&](const Fresh& f) { return items_[f.item].waits; });
  TENURE_ASSIGN_OR_RETURN(const Result rows, tx_.Run(sql::kEnqueueNamed, params));
  const AcceptedReader accepted(rows);
  accepted.Note(queue_, result_);
  for (int row = 0; row < rows.rows(); ++row) {
    const Fresh& fresh = fresh_[static_cast<size_t>(row)];
    EnqueueOutcome& outcome = result_.jobs[fresh.item];
    outcome.state = accepted.StateOf(row);
    if (outcome.state == JobState::kBlocked && !items_[fresh.item].waits) NoteBlocked(fresh.job, result_.blocked);
  }
  return absl::OkStatus();
}

}  // namespace tenure::store::postgres
