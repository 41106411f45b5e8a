#include "server/store/postgres/graph_enqueue.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/fingerprint.h"
#include "server/store/postgres/gate_rows.h"
#include "server/store/postgres/job_params.h"
#include "server/store/postgres/moved_jobs.h"
#include "server/store/postgres/named_enqueue.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

constexpr int32_t kDaysTo2000 = 10957;

using MovedJobs = std::map<JobId, JobId>;
using IdsByQueue = std::map<int32_t, std::map<int64_t, int32_t>>;  // Queue, number, day.

Params AwaitParams(int32_t queue, const std::map<int64_t, int32_t>& days) {
  Params params;
  params.Add(queue).AddArray(days, [](const auto& i) { return i.first; }).AddArray(days, [](const auto& i) {
    return i.second;
  });
  return params;
}

}  // namespace

absl::StatusOr<bool> GraphEnqueue::Write(GraphResult& result) {
  result.jobs.resize(jobs_.size());
  TENURE_RETURN_IF_ERROR(WriteJobs(result));
  if (Refuse(result)) return false;
  TENURE_ASSIGN_OR_RETURN(const bool all_known, WriteDependencies(result));
  if (!all_known) return false;
  return true;
}

void GraphEnqueue::Spread(std::span<const GraphJob> jobs, std::vector<absl::Status>& refused) {
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!refused[i].ok() || !jobs[i].job.depends_on) continue;
    for (int32_t item : jobs[i].job.depends_on->items) {
      if (item >= 0 && static_cast<size_t>(item) < i && refused[static_cast<size_t>(item)].ok()) continue;
      refused[i] = MakeError(absl::StatusCode::kFailedPrecondition, "DEPENDENCY_REFUSED",
                             "depends_on.items: a job of this call that it waits for was refused",
                             {{"field", "depends_on.items"}});
      break;
    }
  }
}

absl::Status GraphEnqueue::WriteJobs(GraphResult& result) {
  std::map<int32_t, std::vector<size_t>> by_queue;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    if (refused_[i].ok()) by_queue[jobs_[i].queue].push_back(i);
  }
  // Keys of all queues before any row of a job.
  std::map<int32_t, NamedEnqueue> named;
  for (const auto& [queue, all] : by_queue) {
    std::vector<const NewJob*> specs;
    for (size_t at : all) specs.push_back(&jobs_[at].job);
    TENURE_RETURN_IF_ERROR(named.try_emplace(queue, tx_, queue, int16_t{0}).first->second.Lock(specs));
  }
  for (const auto& [queue, all] : by_queue) {
    std::vector<NamedItem> items;
    for (size_t at : all) {
      const NewJob& job = jobs_[at].job;
      items.push_back({&job, job.idempotency_key, job.idempotency_key.empty() ? "" : Fingerprint(job), "", 0,
                       job.depends_on.has_value()});
    }
    TENURE_ASSIGN_OR_RETURN(EnqueueResult done, named.at(queue).Write(items));
    for (size_t i = 0; i < all.size(); ++i) result.jobs[all[i]] = std::move(done.jobs[i]);
    result.ready.insert(result.ready.end(), done.ready.begin(), done.ready.end());
    GateNames& blocked = result.blocked[queue];
    blocked.insert(blocked.end(), done.blocked.begin(), done.blocked.end());
    if (done.earliest_due && (!result.earliest_due || *done.earliest_due < *result.earliest_due)) {
      result.earliest_due = done.earliest_due;
    }
    result.xid = done.xid;
  }
  return absl::OkStatus();
}

// True if what was written refused somebody for whom another waits.
bool GraphEnqueue::Refuse(const GraphResult& result) {
  std::vector<absl::Status> now = refused_;
  for (size_t i = 0; i < jobs_.size(); ++i) now[i].Update(result.jobs[i].status);
  Spread(jobs_, now);
  bool more = false;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    // What the statement refused itself has written nothing.
    if (now[i].ok() || !refused_[i].ok() || !result.jobs[i].status.ok()) continue;
    refused_[i] = now[i];
    more = true;
  }
  return more;
}

// A job that is new: one that was there before waits for what it waited for.
bool GraphEnqueue::IsNew(const GraphResult& result, size_t at) const {
  return refused_[at].ok() && result.jobs[at].status.ok() && !result.jobs[at].duplicate && !result.jobs[at].existing;
}

// Marks those of `ids` that are live, and notes them as known; the others are returned.
absl::StatusOr<std::vector<JobId>> GraphEnqueue::Await(const std::set<JobId>& ids, std::set<JobId>& known) {
  IdsByQueue by_queue;
  for (const JobId& id : ids) by_queue[id.queue].try_emplace(id.seq, id.day);
  for (const auto& [queue, of_queue] : by_queue) {
    Params params;
    params.Add(queue).AddArray(of_queue, [](const auto& i) { return i.first; }).AddArray(of_queue, [](const auto& i) {
      return i.second;
    });
    TENURE_ASSIGN_OR_RETURN(const Result live, tx_.Run(sql::kAwaitJobs, params));
    for (int row = 0; row < live.rows(); ++row) {
      known.insert({queue, of_queue.at(live.Int(row, 0)), live.Int(row, 0)});
    }
  }
  std::vector<JobId> gone;
  for (const JobId& id : ids) {
    if (!known.contains(id)) gone.push_back(id);
  }
  return gone;
}

// Those of `gone` that ended and were not moved count at once.
absl::Status GraphEnqueue::ReadEnded(const std::vector<JobId>& gone, const MovedJobs& moved, std::set<JobId>& known,
                                     GraphResult& result) {
  std::set<JobId> ids;
  int32_t earliest = std::numeric_limits<int32_t>::max();
  for (const JobId& id : gone) {
    if (moved.contains(id)) continue;
    ids.insert(id);
    earliest = std::min(earliest, id.day);
  }
  if (ids.empty()) return absl::OkStatus();
  TENURE_ASSIGN_OR_RETURN(
      const Result ended,
      tx_.Run(sql::kResolveEnded,
              Params().AddArray(ids, [](const JobId& id) { return id.seq; }).Add(earliest - kDaysTo2000)));
  const int of_queue = ended.Column("queue_id"), day = ended.Column("day");
  for (int row = 0; row < ended.rows(); ++row) {
    const JobId id{ended.Int32(row, of_queue), ended.Int32(row, day), ended.Int(row, 0)};
    if (!ids.contains(id)) continue;
    known.insert(id);
    result.blocked[id.queue].push_back(AwaitedName(id.seq));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> GraphEnqueue::WriteDependencies(GraphResult& result) {
  std::vector<Edge> edges;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    if (!jobs_[i].job.depends_on || !IsNew(result, i)) continue;
    for (const JobId& id : jobs_[i].job.depends_on->jobs) edges.push_back({id, i});
    for (int32_t item : jobs_[i].job.depends_on->items) {
      edges.push_back({result.jobs[static_cast<size_t>(item)].id, i});
    }
  }
  if (edges.empty()) return true;
  std::set<JobId> known;
  // Once more for those that turn out to have been moved: who names one waits for the job that it became.
  std::set<JobId> ask;
  for (const Edge& edge : edges) ask.insert(edge.awaited);
  while (!ask.empty()) {
    TENURE_ASSIGN_OR_RETURN(const std::vector<JobId> gone, Await(ask, known));
    TENURE_ASSIGN_OR_RETURN(const MovedJobs moved, MovedTo(tx_, gone));
    TENURE_RETURN_IF_ERROR(ReadEnded(gone, moved, known, result));
    ask.clear();
    for (Edge& edge : edges) {
      const auto to = moved.find(edge.awaited);
      if (to == moved.end()) continue;
      edge.awaited = to->second;
      if (!known.contains(edge.awaited)) ask.insert(edge.awaited);
    }
  }
  bool all_known = true;
  for (const Edge& edge : edges) {
    if (known.contains(edge.awaited) || !refused_[edge.waiting].ok()) continue;
    all_known = false;
    refused_[edge.waiting] = MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                                       absl::StrCat("depends_on.job_ids: there is no job ", edge.awaited.ToString(),
                                                    ": it never existed, or its history has expired"),
                                       {{"field", "depends_on.job_ids"}, {"job_id", edge.awaited.ToString()}});
  }
  if (!all_known) return false;
  auto depends_on = [&](const Edge& edge) -> const DependsOn& { return *jobs_[edge.waiting].job.depends_on; };
  tx_.Queue(sql::kAddDependencies,
            Params()
                .AddArray(edges, [](const Edge& e) { return e.awaited.seq; })
                .AddArray(edges, [](const Edge& e) { return e.awaited.queue; })
                .AddArray(edges, [](const Edge& e) { return e.awaited.day; })
                .AddArray(edges, [&](const Edge& e) { return result.jobs[e.waiting].id.seq; })
                .AddArray(edges, [&](const Edge& e) { return result.jobs[e.waiting].id.queue; })
                .AddArray(edges, [&](const Edge& e) { return depends_on(e).all_ended; })
                .AddArray(edges, [&](const Edge& e) { return depends_on(e).release_on_failure; }));
  return true;
}

GraphLocks::GraphLocks(std::span<const GraphJob> jobs, std::span<const absl::Status> refused) {
  std::map<std::pair<int32_t, std::string>, size_t> names, keys;
  std::map<JobId, size_t> awaited;
  const auto note = [&](auto& places, const auto& key, size_t job) -> Lock& {
    const auto place = places.try_emplace(key, locks_.size());
    if (place.second) locks_.emplace_back();
    Lock& lock = locks_[place.first->second];
    lock.jobs.push_back(job);
    return lock;
  };
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!refused[i].ok()) continue;
    const NewJob& job = jobs[i].job;
    if (job.unique) {
      Lock& lock = note(names, std::pair(jobs[i].queue, UniqueName(job)), i);
      lock.queue = jobs[i].queue;
      lock.unique = &job;
    }
    if (!job.idempotency_key.empty()) {
      Lock& lock = note(keys, std::pair(jobs[i].queue, job.idempotency_key), i);
      lock.queue = jobs[i].queue;
      lock.idempotency_key = job.idempotency_key;
    }
    if (!job.depends_on) continue;
    for (const JobId& id : job.depends_on->jobs) note(awaited, id, i).awaited = id;
  }
}

absl::Status GraphLocks::Take(Transaction& tx, std::span<const size_t> places) const {
  std::map<int32_t, std::vector<const NewJob*>> unique;
  std::map<int32_t, std::set<std::string>> keys;
  std::vector<JobId> ids;
  for (const size_t place : places) {
    const Lock& lock = locks_[place];
    if (lock.unique != nullptr) unique[lock.queue].push_back(lock.unique);
    if (!lock.idempotency_key.empty()) keys[lock.queue].insert(lock.idempotency_key);
    if (lock.awaited) ids.push_back(*lock.awaited);
  }
  for (const auto& [queue, of_queue] : unique) TENURE_RETURN_IF_ERROR(NamedEnqueue(tx, queue, 0).Lock(of_queue));
  for (const auto& [queue, of_queue] : keys) {
    Params params;
    params.Add(queue)
        .Add(int16_t{0})
        .AddArray(of_queue)
        .AddByteaArray(of_queue, [](const std::string&) { return std::string_view(); })
        .AddArray(of_queue, [](const std::string&) { return int64_t{0}; });
    TENURE_RETURN_IF_ERROR(tx.Run(sql::kTakeKeys, params).status());
  }
  // Where they are now: those that were moved are waited for under their new ids.
  TENURE_ASSIGN_OR_RETURN(const MovedJobs moved, MovedTo(tx, ids));
  IdsByQueue by_queue;
  for (const JobId& id : ids) {
    const auto to = moved.find(id);
    const JobId& now = to == moved.end() ? id : to->second;
    by_queue[now.queue].try_emplace(now.seq, now.day);
  }
  for (const auto& [queue, of_queue] : by_queue) {
    TENURE_RETURN_IF_ERROR(tx.Run(sql::kAwaitJobs, AwaitParams(queue, of_queue)).status());
  }
  return absl::OkStatus();
}

void GraphLocks::Refuse(size_t place, std::vector<absl::Status>& refused) const {
  const Lock& lock = locks_[place];
  absl::Status why;
  if (lock.awaited) {
    why = MakeError(absl::StatusCode::kUnavailable, "JOB_LOCKED",
                    absl::StrCat("depends_on.job_ids: another transaction holds job ", lock.awaited->ToString(),
                                 " and has not ended yet; try again"),
                    {{"field", "depends_on.job_ids"}, {"job_id", lock.awaited->ToString()}}, absl::Milliseconds(200));
  } else {
    why = lock.unique != nullptr ? UniqueKeyBusy() : IdempotencyKeyBusy();
  }
  for (const size_t job : lock.jobs) refused[job].Update(why);
}

}  // namespace tenure::store::postgres
