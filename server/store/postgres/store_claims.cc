// PostgresStore: claims and extends.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/status.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

// One row sort of claim.sql each.
enum RowSort : int64_t { kLeased = 0, kMissed = 1, kRangeRead = 2, kPaused = 3 };

struct Grant {
  const ClaimRequestKey* request;
  const ClaimedJob* job;
};

// Takes hold of the request ids to the end of the transaction; those that an earlier claim has answered under. A second
// statement looks, so that it sees what the first waited for.
absl::StatusOr<std::set<std::string>> TakenRequests(Transaction& tx, std::vector<std::string> ids) {
  std::sort(ids.begin(), ids.end());
  tx.Queue(sql::kLockRequests, Params().AddArray(ids));
  TENURE_ASSIGN_OR_RETURN(Result rows, tx.Run(sql::kTakenRequests, Params().AddArray(ids)));
  std::set<std::string> taken;
  for (int row = 0; row < rows.rows(); ++row) taken.insert(rows.Text(row, 0));
  return taken;
}

// Records what claims with request ids were given, and commits.
absl::Status CommitGrants(Transaction& tx, int32_t queue, const std::vector<Grant>& grants) {
  if (grants.empty()) return tx.Commit();
  std::map<std::string_view, int64_t> requests;
  for (const Grant& grant : grants)
    requests[grant.request->request_id] = absl::ToInt64Microseconds(grant.request->keep);
  Params granted;
  granted.Add(queue)
      .AddArray(grants, [](const Grant& g) { return std::string_view(g.request->request_id); })
      .AddArray(grants, [](const Grant& g) { return g.job->job.id.seq; })
      .AddArray(grants, [](const Grant& g) { return g.job->token.number; })
      .AddArray(grants, [](const Grant& g) { return g.job->token.secret; })
      .AddArray(requests, [](const auto& r) { return r.first; })
      .AddArray(requests, [](const auto& r) { return r.second; });
  return tx.RunAndCommit(sql::kClaimGrant, granted).status();
}

}  // namespace

absl::StatusOr<ClaimResult> PostgresStore::Claim(const ClaimBatch& batch) {
  struct Claimed {
    ClaimResult result;
    std::vector<int32_t> payload_days;
  };
  auto claimed = Run<Claimed>("claim", [&](Transaction& tx) -> absl::StatusOr<Claimed> {
    Claimed out;
    out.result.ranges.resize(batch.ranges.size());
    std::vector<ClaimSlot> slots = batch.slots;
    if (!batch.requests.empty()) {
      std::vector<std::string> ids;
      for (const ClaimRequestKey& request : batch.requests) ids.push_back(request.request_id);
      TENURE_ASSIGN_OR_RETURN(const std::set<std::string> taken, TakenRequests(tx, std::move(ids)));
      for (size_t i = 0; i < batch.requests.size(); ++i) {
        if (taken.contains(batch.requests[i].request_id)) out.result.taken_requests.push_back(static_cast<int32_t>(i));
      }
      std::erase_if(slots, [&](const ClaimSlot& slot) {
        return slot.request >= 0 && taken.contains(batch.requests[static_cast<size_t>(slot.request)].request_id);
      });
    }
    if (slots.empty()) {
      TENURE_RETURN_IF_ERROR(tx.Commit());
      return out;
    }
    const std::vector<int64_t> secrets = Secrets(slots.size());
    Params params;
    params.Add(batch.queue)
        .Add(batch.replica)
        .AddArray(batch.ranges, [](const ClaimRange& r) { return r.priority; })
        .AddArray(batch.ranges, [](const ClaimRange& r) { return r.after.rank; })
        .AddArray(batch.ranges, [](const ClaimRange& r) { return r.after.id; })
        .AddArray(batch.ranges, [](const ClaimRange& r) { return r.upto.rank; })
        .AddArray(batch.ranges, [](const ClaimRange& r) { return r.upto.id; })
        .AddArray(batch.revisit)
        .AddArray(slots, [](const ClaimSlot& s) { return s.worker + 1; })
        .AddArray(slots, [](const ClaimSlot& s) { return absl::ToInt64Microseconds(s.lease); })
        .AddArray(secrets)
        .AddArray(batch.workers)
        .Add(batch.max_bytes);
    tx.Queue(sql::kLockQueueShared, Params().Add(batch.queue));
    const bool granting = !batch.requests.empty();
    auto answer = granting ? tx.Run(sql::kClaim, params) : tx.RunAndCommit(sql::kClaim, params);
    if (!answer.ok()) return answer.status();
    const Result& rows = *answer;
    const JobReader reader(rows, batch.queue);
    const int priority = rows.Column("priority");
    const int sort = rows.Column("row_sort"), slot = rows.Column("slot"), id = rows.Column("id");
    const int range_no = rows.Column("range_no"), keys = rows.Column("keys"), last_rank = rows.Column("last_rank");
    int64_t read = 0;
    size_t furthest = 0;
    for (int row = 0; row < rows.rows(); ++row) {
      switch (rows.Int(row, sort)) {
        case kLeased: {
          ClaimedJob job = reader.ReadClaimed(row);
          const size_t at = static_cast<size_t>(rows.Int(row, slot) - 1);
          // Back from the slots that were offered to those that the caller numbered.
          job.slot = static_cast<int32_t>(at);
          out.payload_days.push_back(reader.PayloadDay(row));
          out.result.jobs.push_back(std::move(job));
          break;
        }
        case kMissed:
          out.result.missed.push_back(rows.Int(row, id));
          out.result.missed_priorities.push_back(static_cast<int16_t>(rows.Int(row, priority)));
          break;
        case kPaused:
          out.result.paused = true;
          break;
        default: {
          read += rows.Int(row, keys);
          const size_t no = static_cast<size_t>(rows.Int(row, range_no));
          if (no == 0) break;  // The single ids.
          furthest = std::max(furthest, no);
          out.result.ranges[no - 1].last = Key{rows.Int(row, last_rank), rows.Int(row, id)};
        }
      }
    }
    // All stretches were read to their ends, unless the statement had as many keys as it wanted: then those before the
    // one it stopped in were, and those after it were not begun.
    const bool stopped = read >= static_cast<int64_t>(slots.size());
    for (size_t i = 0; i < out.result.ranges.size(); ++i) out.result.ranges[i].exhausted = !stopped || i + 1 < furthest;
    if (granting) {
      std::vector<Grant> grants;
      for (const ClaimedJob& job : out.result.jobs) {
        const int32_t request = slots[static_cast<size_t>(job.slot)].request;
        if (request >= 0) grants.push_back({&batch.requests[static_cast<size_t>(request)], &job});
      }
      TENURE_RETURN_IF_ERROR(CommitGrants(tx, batch.queue, grants));
    }
    // Slots were renumbered when some were taken out; tell the caller its own numbers.
    std::vector<int32_t> original;
    for (size_t i = 0, kept = 0; i < batch.slots.size() && kept < slots.size(); ++i) {
      const ClaimSlot& s = batch.slots[i];
      const bool taken = s.request >= 0 && std::find(out.result.taken_requests.begin(), out.result.taken_requests.end(),
                                                     s.request) != out.result.taken_requests.end();
      if (!taken) {
        original.push_back(static_cast<int32_t>(i));
        ++kept;
      }
    }
    for (ClaimedJob& job : out.result.jobs) job.slot = original[static_cast<size_t>(job.slot)];
    return out;
  });
  if (!claimed.ok()) return claimed.status();
  std::vector<Job*> jobs;
  for (ClaimedJob& job : claimed->result.jobs) jobs.push_back(&job.job);
  TENURE_RETURN_IF_ERROR(FetchPayloads(jobs, claimed->payload_days));
  return std::move(claimed->result);
}

absl::StatusOr<std::vector<NamedClaimOutcome>> PostgresStore::ClaimNamed(int32_t queue, int32_t replica,
                                                                         std::string_view worker, absl::Duration lease,
                                                                         std::string_view request_id,
                                                                         std::span<const JobId> ids) {
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
  auto claimed = Run<bool>("claim_named", [&](Transaction& tx) -> absl::StatusOr<bool> {
    outcomes.clear();
    payload_days.clear();
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
        .AddArray(days_by_id, [](const auto& d) { return d.second; });
    tx.Queue(sql::kLockQueueShared, Params().Add(queue));
    TENURE_ASSIGN_OR_RETURN(Result rows, tx.Run(sql::kClaimNamed, params));
    const JobReader reader(rows);
    std::vector<const ClaimedJob*> got;
    for (int row = 0; row < rows.rows(); ++row) {
      ClaimedJob job = reader.ReadClaimed(row);
      payload_days[job.job.id.seq] = reader.PayloadDay(row);
      NamedClaimOutcome& outcome = outcomes[job.job.id.seq];
      outcome.job = std::move(job);
      got.push_back(&*outcome.job);
    }
    const ClaimRequestKey request{std::string(request_id), lease};
    std::vector<Grant> grants;
    if (!request_id.empty()) {
      for (const ClaimedJob* job : got) grants.push_back({&request, job});
    }
    TENURE_RETURN_IF_ERROR(CommitGrants(tx, queue, grants));
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
      } else {
        refusal = MakeError(
            absl::StatusCode::kFailedPrecondition, "NOT_READY",
            absl::StrCat(
                "job ", job.id.ToString(),
                job.state == JobState::kScheduled
                    ? absl::StrCat(" is scheduled for ", absl::FormatTime(job.due, absl::UTCTimeZone()),
                                   "; retry it to make it due now")
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
