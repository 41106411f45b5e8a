// PostgresStore: claims and extends.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

// One row sort of claim.sql each.
enum RowSort : int64_t { kLeased = 0, kMissed = 1, kRangeRead = 2, kPaused = 3, kGranted = 4, kCut = 5 };

constexpr std::string_view kUniqueViolation = "23505";

bool SameForAll(const std::vector<ClaimSlot>& slots) {
  return std::all_of(slots.begin(), slots.end(), [&](const ClaimSlot& s) {
    return s.worker == slots[0].worker && s.lease == slots[0].lease && s.request == slots[0].request;
  });
}

// Those of the request ids that an earlier claim has answered under. A second statement looks, so that it sees what the
// first waited for.
absl::StatusOr<std::set<std::string>> TakenRequests(Transaction& tx, const std::vector<std::string>& ids) {
  tx.Queue(sql::kLockRequests, Params().AddArray(ids));
  TENURE_ASSIGN_OR_RETURN(Result rows, tx.Run(sql::kTakenRequests, Params().AddArray(ids)));
  std::set<std::string> taken;
  for (int row = 0; row < rows.rows(); ++row) taken.insert(rows.Text(row, 0));
  return taken;
}

// Of claim_alone.sql (`alone`), or of claim.sql.
Params ClaimParams(const ClaimBatch& batch, const std::vector<ClaimSlot>& slots, const std::vector<int64_t>& secrets,
                   bool alone) {
  const bool uniform = SameForAll(slots);
  const std::span<const ClaimSlot> each = std::span(slots).first(uniform ? 1 : slots.size());
  Params params;
  params.Add(batch.queue)
      .Add(batch.replica)
      .AddArray(batch.ranges, [](const ClaimRange& r) { return r.priority; })
      .AddArray(batch.ranges, [](const ClaimRange& r) { return r.after.rank; })
      .AddArray(batch.ranges, [](const ClaimRange& r) { return r.after.id; })
      .AddArray(batch.ranges, [](const ClaimRange& r) { return r.upto.rank; })
      .AddArray(batch.ranges, [](const ClaimRange& r) { return r.upto.id; });
  if (!alone) params.AddArray(batch.revisit);
  params.AddArray(each, [](const ClaimSlot& s) { return s.worker + 1; })
      .AddArray(each, [](const ClaimSlot& s) { return absl::ToInt64Microseconds(s.lease); })
      .AddArray(secrets)
      .AddArray(batch.workers)
      .Add(batch.max_bytes)
      .AddArray(each, [](const ClaimSlot& s) { return s.request + 1; })
      .AddArray(batch.requests, [](const ClaimRequestKey& r) { return std::string_view(r.request_id); })
      .AddArray(batch.requests, [](const ClaimRequestKey& r) { return absl::ToInt64Microseconds(r.keep); })
      .Add(uniform);
  return params;
}

// The rows of both; `slots` are those that were offered.
class ClaimReader {
 public:
  ClaimReader(const Result& rows, const ClaimBatch& batch, const std::vector<ClaimSlot>& slots)
      : rows_(rows), batch_(batch), slots_(slots), reader_(rows, batch.queue) {}

  ClaimResult Read() {
    result_.ranges.resize(batch_.ranges.size());
    const int sort = rows_.Column("row_sort"), id = rows_.Column("id"), priority = rows_.Column("priority"),
              range_no = rows_.Column("range_no"), keys = rows_.Column("keys"), last_rank = rows_.Column("last_rank"),
              kind = rows_.Column("kind");
    std::map<std::string, int64_t> grants;  // By request id; "" for the slots without one.
    std::vector<int> leased;
    int64_t read = 0;
    size_t furthest = 0;
    for (int row = 0; row < rows_.rows(); ++row) {
      switch (rows_.Int(row, sort)) {
        case kLeased:
          leased.push_back(row);
          break;
        case kMissed:
          result_.missed.push_back(rows_.Int(row, id));
          result_.missed_priorities.push_back(static_cast<int16_t>(rows_.Int(row, priority)));
          break;
        case kPaused:
          result_.paused = true;
          break;
        case kGranted:
          grants[rows_.Text(row, kind)] = rows_.Int(row, id);
          break;
        case kCut:
          cut_ = true;
          break;
        default: {
          read += rows_.Int(row, keys);
          const size_t no = static_cast<size_t>(rows_.Int(row, range_no));
          if (no == 0) break;  // The single ids.
          furthest = std::max(furthest, no);
          std::optional<Key>& last = result_.ranges[no - 1].last;
          const Key key{rows_.Int(row, last_rank), rows_.Int(row, id)};
          if (!last || *last < key) last = key;
        }
      }
    }
    // All stretches were read to their ends, unless the statement found as many jobs as it wanted, or as large ones:
    // then those before the one it stopped in were, and those after it were not begun.
    const bool stopped = cut_ || read >= static_cast<int64_t>(slots_.size());
    for (size_t i = 0; i < result_.ranges.size(); ++i) result_.ranges[i].exhausted = !stopped || i + 1 < furthest;

    std::sort(leased.begin(), leased.end(), [&](int a, int b) { return rows_.Int(a, id) < rows_.Int(b, id); });
    result_.jobs.reserve(leased.size());
    for (size_t at = 0; at < leased.size(); ++at) ReadLeased(leased[at], at, grants);
    return std::move(result_);
  }
  // The byte budget ended the reading; claim_alone.sql has then leased nothing.
  bool cut() const { return cut_; }
  // Of each job: the day whose partition holds its payload, or -1.
  const std::vector<int32_t>& payload_days() const { return payload_days_; }
  // Jobs of which claim_details.sql has more.
  const std::vector<size_t>& with_details() const { return with_details_; }

 private:
  void ReadLeased(int row, size_t at, const std::map<std::string, int64_t>& grants) {
    const ClaimSlot& slot = slots_[at];
    ClaimedJob claimed = reader_.ReadClaimed(row);
    Job& job = claimed.job;
    claimed.slot = static_cast<int32_t>(at);
    claimed.lease = claimed.remaining = slot.lease;
    job.updated = rows_.Time(row, leased_at_);
    job.lease = Lease{batch_.workers[static_cast<size_t>(slot.worker)], job.updated + slot.lease, job.updated,
                      claimed.token.number};
    claimed.repeatable = slot.request >= 0;
    const auto grant =
        grants.find(claimed.repeatable ? batch_.requests[static_cast<size_t>(slot.request)].request_id : std::string());
    if (grant != grants.end()) claimed.grant = grant->second;
    if (rows_.Bool(row, more_)) with_details_.push_back(result_.jobs.size());
    payload_days_.push_back(reader_.PayloadDay(row));
    result_.jobs.push_back(std::move(claimed));
  }

  const Result& rows_;
  const ClaimBatch& batch_;
  const std::vector<ClaimSlot>& slots_;
  const JobReader reader_;
  const int leased_at_ = rows_.Column("leased_at");
  const int more_ = rows_.Column("more");
  ClaimResult result_;
  bool cut_ = false;
  std::vector<int32_t> payload_days_;
  std::vector<size_t> with_details_;
};

}  // namespace

// The batch without what it is to leave out: jobs that another takes meanwhile are missed, and the poll looks again.
// `seen`: how many are ready, of whichever tenant, as far as it looked.
absl::StatusOr<ClaimBatch> PostgresStore::LeaveOut(const ClaimBatch& batch, int64_t* seen) {
  TENURE_ASSIGN_OR_RETURN(const Result rows,
                          RunOne("ready_except", sql::kReadyExcept,
                                 Params()
                                     .Add(batch.queue)
                                     .AddArray(batch.ranges, [](const ClaimRange& r) { return r.priority; })
                                     .AddArray(batch.ranges, [](const ClaimRange& r) { return r.after.rank; })
                                     .AddArray(batch.ranges, [](const ClaimRange& r) { return r.after.id; })
                                     .AddArray(batch.ranges, [](const ClaimRange& r) { return r.upto.rank; })
                                     .AddArray(batch.revisit)
                                     .AddArray(batch.exclude_tenants)
                                     .Add(kExceptLooked)
                                     .Add(static_cast<int64_t>(batch.slots.size()))));
  ClaimBatch named = batch;
  named.exclude_tenants.clear();
  named.ranges.clear();
  named.revisit.clear();
  named.alone = false;
  std::set<int64_t> known;
  for (int row = 0; row < rows.rows(); ++row) {
    *seen = rows.Int(row, 1);
    // A stretch may reach into the next one.
    if (!rows.IsNull(row, 0) && known.insert(rows.Int(row, 0)).second) named.revisit.push_back(rows.Int(row, 0));
  }
  return named;
}

absl::StatusOr<ClaimResult> PostgresStore::Claim(const ClaimBatch& batch) {
  if (!batch.exclude_tenants.empty()) {
    int64_t seen = 0;
    TENURE_ASSIGN_OR_RETURN(const ClaimBatch named, LeaveOut(batch, &seen));
    TENURE_ASSIGN_OR_RETURN(ClaimResult result, Claim(named));
    result.none_left_out = seen == 0 && !result.paused;
    if (result.none_left_out) result.ranges.assign(batch.ranges.size(), {.exhausted = true, .last = std::nullopt});
    return result;
  }
  struct Claimed {
    ClaimResult result;
    std::vector<int32_t> payload_days;
    std::vector<size_t> with_details;
    bool too_large = false;  // Nothing was leased: what waits does not fit into the byte budget.
  };
  std::vector<std::string> ids;
  for (const ClaimRequestKey& request : batch.requests) ids.push_back(request.request_id);
  std::sort(ids.begin(), ids.end());
  // Request ids are new but for the repeats of lost answers, so a claim does not ask first whether they are.
  auto claim = [&](bool ask, bool alone) {
    return Run<Claimed>("claim", [&](Transaction& tx) -> absl::StatusOr<Claimed> {
      Claimed out;
      std::vector<size_t> offered;  // Indexes of batch.slots.
      if (ask) {
        TENURE_ASSIGN_OR_RETURN(const std::set<std::string> taken, TakenRequests(tx, ids));
        for (size_t i = 0; i < batch.requests.size(); ++i) {
          if (taken.contains(batch.requests[i].request_id))
            out.result.taken_requests.push_back(static_cast<int32_t>(i));
        }
      } else if (!ids.empty()) {
        tx.Queue(sql::kLockRequests, Params().AddArray(ids));
      }
      std::vector<ClaimSlot> slots;
      for (size_t i = 0; i < batch.slots.size(); ++i) {
        const std::vector<int32_t>& taken = out.result.taken_requests;
        if (std::find(taken.begin(), taken.end(), batch.slots[i].request) != taken.end()) continue;
        slots.push_back(batch.slots[i]);
        offered.push_back(i);
      }
      if (slots.empty()) {
        out.result.ranges.resize(batch.ranges.size());
        TENURE_RETURN_IF_ERROR(tx.Commit());
        return out;
      }
      tx.Queue(sql::kLockQueueShared, Params().Add(batch.queue));
      TENURE_ASSIGN_OR_RETURN(const Result rows,
                              tx.RunAndCommit(alone ? sql::kClaimAlone : sql::kClaim,
                                              ClaimParams(batch, slots, Secrets(slots.size()), alone)));
      ClaimReader reader(rows, batch, slots);
      std::vector<int32_t> taken = std::move(out.result.taken_requests);
      out.result = reader.Read();
      out.result.taken_requests = std::move(taken);
      for (ClaimedJob& job : out.result.jobs) job.slot = static_cast<int32_t>(offered[static_cast<size_t>(job.slot)]);
      out.too_large = alone && reader.cut();
      out.payload_days = reader.payload_days();
      out.with_details = reader.with_details();
      return out;
    });
  };
  bool ask = false, alone = batch.alone;
  auto claimed = claim(ask, alone);
  // Each of the two can fail the claim once.
  for (int failed = 0; failed < 2 && (!claimed.ok() || claimed->too_large); ++failed) {
    const std::string why = claimed.ok() ? std::string() : SqlStateOf(claimed.status());
    if (why == kUniqueViolation && !ask) {
      ask = true;
    } else if ((why.empty() || why == kLockNotAvailable) && alone) {
      alone = false;
    } else {
      break;
    }
    claimed = claim(ask, alone);
  }
  if (!claimed.ok()) return claimed.status();
  claimed->result.contended = batch.alone && !alone;
  std::vector<Job*> jobs;
  for (ClaimedJob& job : claimed->result.jobs) jobs.push_back(&job.job);
  TENURE_RETURN_IF_ERROR(FetchPayloads(jobs, claimed->payload_days));
  std::vector<Job*> detailed;
  for (size_t i : claimed->with_details) detailed.push_back(jobs[i]);
  TENURE_RETURN_IF_ERROR(FetchDetails(batch.queue, detailed));
  return std::move(claimed->result);
}

absl::Status PostgresStore::FetchDetails(int32_t queue, std::span<Job* const> jobs) {
  if (jobs.empty()) return absl::OkStatus();
  std::map<int64_t, Job*> by_id;
  for (Job* job : jobs) by_id[job->id.seq] = job;
  TENURE_ASSIGN_OR_RETURN(const Result rows,
                          RunOne("claim_details", sql::kClaimDetails,
                                 Params().Add(queue).AddArray(by_id, [](const auto& j) { return j.first; })));
  const JobReader reader(rows, queue);
  const int id = rows.Column("id");
  // A job that was cancelled meanwhile has no row, and its worker learns of that.
  for (int row = 0; row < rows.rows(); ++row) reader.ReadDetails(row, *by_id.at(rows.Int(row, id)));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NamedClaimOutcome>> PostgresStore::ClaimNamed(int32_t queue, int32_t replica,
                                                                         std::string_view worker, absl::Duration lease,
                                                                         std::string_view request_id,
                                                                         std::span<const JobId> ids,
                                                                         int64_t max_bytes) {
  std::map<int64_t, int32_t>
      days_by_id;  // One id, one day: of two spellings at most one is right, and the other is not found.
  int32_t earliest = std::numeric_limits<int32_t>::max();
  for (const JobId& id : ids) {
    days_by_id.try_emplace(id.seq, id.day);
    earliest = std::min(earliest, id.day);
  }
  std::vector<int64_t> seqs;
  for (const auto& [seq, unused] : days_by_id) seqs.push_back(seq);
  std::map<int64_t, NamedClaimOutcome> outcomes;
  std::map<int64_t, int32_t> payload_days;
  bool cut = false;  // Some were left for the byte budget.
  auto claimed = Run<bool>("claim_named", [&](Transaction& tx) -> absl::StatusOr<bool> {
    outcomes.clear();
    payload_days.clear();
    cut = false;
    if (!request_id.empty()) {
      TENURE_ASSIGN_OR_RETURN(const std::set<std::string> taken, TakenRequests(tx, {std::string(request_id)}));
      if (!taken.empty()) return false;
    }
    Params params;
    params.Add(queue)
        .Add(replica)
        .Add(worker)
        .Add(absl::ToInt64Microseconds(lease))
        .AddArray(seqs)
        .AddArray(Secrets(seqs.size()))
        .AddArray(days_by_id, [](const auto& d) { return d.second; })
        .Add(request_id.empty() ? std::optional<std::string_view>() : request_id)
        .Add(max_bytes);
    tx.Queue(sql::kLockQueueShared, Params().Add(queue));
    TENURE_ASSIGN_OR_RETURN(Result rows, tx.RunAndCommit(sql::kClaimNamed, params));
    const JobReader reader(rows);
    const int grant = rows.Column("grant_id"), cut_column = rows.Column("cut");
    for (int row = 0; row < rows.rows(); ++row) {
      cut = rows.Bool(row, cut_column);
      ClaimedJob job = reader.ReadClaimed(row);
      job.grant = rows.Int(row, grant);
      job.repeatable = !request_id.empty();
      payload_days[job.job.id.seq] = reader.PayloadDay(row);
      outcomes[job.job.id.seq].job = std::move(job);
    }
    return true;
  });
  if (!claimed.ok()) return claimed.status();
  if (!*claimed) {
    return MakeError(absl::StatusCode::kAlreadyExists, "REQUEST_REPLAYED", "request_id: an earlier claim has used it");
  }
  std::vector<Job*> jobs;
  std::vector<int32_t> days;
  for (auto& [seq, outcome] : outcomes) {
    jobs.push_back(&outcome.job->job);
    days.push_back(payload_days[seq]);
  }
  TENURE_RETURN_IF_ERROR(FetchPayloads(jobs, days));

  std::vector<int64_t> missing;
  for (int64_t seq : seqs) {
    if (!outcomes.contains(seq)) missing.push_back(seq);
  }
  if (!missing.empty()) {
    TENURE_ASSIGN_OR_RETURN(Result live, RunOne("find_live", sql::kFindLive, Params().Add(queue).AddArray(missing)));
    const JobReader reader(live);
    for (int row = 0; row < live.rows(); ++row) {
      const Job job = reader.Read(row);
      if (job.id.day != days_by_id.at(job.id.seq)) continue;
      absl::Status& refusal = outcomes[job.id.seq].refusal;
      if (job.lease) {
        refusal = MakeError(
            absl::StatusCode::kFailedPrecondition, "LEASE_HELD",
            absl::StrCat("job ", job.id.ToString(), " is held by ", job.lease->worker, " until ",
                         absl::FormatTime(job.lease->expires, absl::UTCTimeZone()), " (token ", job.lease->number, ")"),
            {{"job_id", job.id.ToString()},
             {"holder", job.lease->worker},
             {"until", absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", job.lease->expires, absl::UTCTimeZone())},
             {"token_number", std::to_string(job.lease->number)}});
      } else if (cut && job.state == JobState::kReady) {
        refusal = MakeError(
            absl::StatusCode::kResourceExhausted, "REPLY_FULL",
            absl::StrCat("job ", job.id.ToString(),
                         " does not fit in this answer (max_bytes) beside the others; claim it in another call"),
            {{"job_id", job.id.ToString()}});
      } else {
        refusal = MakeError(
            absl::StatusCode::kFailedPrecondition, "NOT_READY",
            absl::StrCat(
                "job ", job.id.ToString(),
                job.state == JobState::kScheduled
                    ? absl::StrCat(" is scheduled for ", absl::FormatTime(job.due, absl::UTCTimeZone()),
                                   "; retry it to make it due now")
                : job.state == JobState::kBlocked
                    ? std::string(" is blocked: what it waits for is told by Explain")
                    : std::string(" is not claimable now: its queue is paused, or another transaction holds it")),
            {{"job_id", job.id.ToString()}});
      }
    }
    constexpr int32_t kDaysTo2000 = 10957;
    TENURE_ASSIGN_OR_RETURN(Result ended, RunOne("resolve_ended", sql::kResolveEnded,
                                                 Params().AddArray(missing).Add(earliest - kDaysTo2000)));
    for (int row = 0; row < ended.rows(); ++row) {
      const int64_t seq = ended.Int(row, 0);
      if (ended.Int32(row, ended.Column("queue_id")) != queue ||
          ended.Int32(row, ended.Column("day")) != days_by_id.at(seq)) {
        continue;
      }
      outcomes[seq].refusal = MakeError(absl::StatusCode::kFailedPrecondition, "ALREADY_SETTLED",
                                        "the job has ended; retry it to make a new job of it");
    }
  }
  std::vector<NamedClaimOutcome> result;
  for (const JobId& id : ids) {
    auto outcome = outcomes.find(id.seq);
    if (outcome == outcomes.end() || days_by_id.at(id.seq) != id.day) {
      result.emplace_back();
      result.back().refusal =
          MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                    absl::StrCat("there is no job ", id.ToString(), ": it never existed, or its history has expired"),
                    {{"job_id", id.ToString()}});
    } else {
      result.push_back(outcome->second);
    }
  }
  return result;
}

absl::StatusOr<std::optional<std::vector<ClaimedJob>>> PostgresStore::FindClaim(std::string_view request_id) {
  // An original that is at work on another replica is waited for.
  auto found = Run<Result>("find_claim", [&](Transaction& tx) -> absl::StatusOr<Result> {
    tx.Queue(sql::kLockRequests, Params().AddArray(std::vector<std::string>{std::string(request_id)}));
    return tx.RunAndCommit(sql::kFindClaim, Params().Add(request_id));
  });
  if (!found.ok()) return found.status();
  const Result& rows = *found;
  if (rows.rows() == 0) return std::optional<std::vector<ClaimedJob>>();
  std::vector<ClaimedJob> jobs;
  std::vector<int32_t> days;
  const JobReader reader(rows);
  const int id = rows.Column("id");
  for (int row = 0; row < rows.rows(); ++row) {
    if (rows.IsNull(row, id)) continue;
    jobs.push_back(reader.ReadClaimed(row));
    days.push_back(reader.PayloadDay(row));
  }
  std::vector<Job*> pointers;
  for (ClaimedJob& job : jobs) pointers.push_back(&job.job);
  TENURE_RETURN_IF_ERROR(FetchPayloads(pointers, days));
  return std::optional<std::vector<ClaimedJob>>(std::move(jobs));
}

absl::StatusOr<std::vector<ExtendOutcome>> PostgresStore::Extend(int32_t queue, std::span<const ExtendItem> items) {
  // Sorted by id, one item a job; a second item for the same job is left unresolved and comes again.
  std::map<int64_t, size_t> by_id;
  for (size_t i = 0; i < items.size(); ++i) by_id.try_emplace(items[i].token.job.seq, i);
  std::vector<const ExtendItem*> sorted;
  for (const auto& [unused, at] : by_id) sorted.push_back(&items[at]);
  Params params;
  params.Add(queue)
      .AddArray(sorted, [](const ExtendItem* i) { return i->token.job.seq; })
      .AddArray(sorted, [](const ExtendItem* i) { return i->token.number; })
      .AddArray(sorted, [](const ExtendItem* i) { return i->token.secret; })
      .AddArray(sorted,
                [](const ExtendItem* i) {
                  return i->duration ? std::optional<int64_t>(absl::ToInt64Microseconds(*i->duration)) : std::nullopt;
                })
      .AddArray(sorted,
                [](const ExtendItem* i) { return i->progress ? std::optional(i->progress->fraction) : std::nullopt; })
      .AddArray(sorted, [](const ExtendItem* i) {
        return i->progress && !i->progress->message.empty() ? std::optional(std::string_view(i->progress->message))
                                                            : std::nullopt;
      });
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("extend", sql::kExtend, params));
  std::vector<ExtendOutcome> outcomes(items.size());
  for (int row = 0; row < rows.rows(); ++row) {
    ExtendOutcome& outcome = outcomes[by_id.at(rows.Int(row, 0))];
    outcome.state = TokenState::kWon;
    outcome.expires = rows.Time(row, 1);
    outcome.remaining = absl::Seconds(rows.Double(row, 2));
  }
  return outcomes;
}

}  // namespace tenure::store::postgres
