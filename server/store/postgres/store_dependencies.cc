// PostgresStore: jobs that wait for others. A graph is accepted in one transaction; who waits is let go, or cancelled,
// in transactions of its own after a job has ended, by whichever replica looks.
//
// Who decides on a waiting job holds its row, and reads what it waits for in a later statement. So of two jobs that end
// at the same moment the one whose end is counted last sees both, and nobody decides twice.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/fingerprint.h"
#include "server/store/postgres/job_params.h"
#include "server/store/postgres/moved_jobs.h"
#include "server/store/postgres/named_enqueue.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

constexpr int32_t kDaysTo2000 = 10957;
// Rows that one look reads.
constexpr int64_t kRowsPerLook = 1000;
// A job whose record is gone ended in a way that nobody can tell any more.
constexpr int32_t kOutcomeUnknown = 0;

using MovedJobs = std::map<JobId, JobId>;
using IdsByQueue = std::map<int32_t, std::map<int64_t, int32_t>>;  // Queue, number, day.

// One attempt at accepting a graph. What is refused before it is written is known beforehand: if writing refuses more,
// everything is undone and begun again without those and without who waits for them.
class GraphEnqueue {
 public:
  GraphEnqueue(Transaction& tx, std::span<const GraphJob> jobs, std::vector<absl::Status>& refused)
      : tx_(tx), jobs_(jobs), refused_(refused) {}

  // False: more was refused, begin again. Leaves the commit to the caller.
  absl::StatusOr<bool> Write(GraphResult& result) {
    result.jobs.resize(jobs_.size());
    TENURE_RETURN_IF_ERROR(WriteJobs(result));
    if (Refuse(result)) return false;
    TENURE_ASSIGN_OR_RETURN(const bool all_known, WriteDependencies(result));
    if (!all_known) return false;
    return true;
  }

  // Who waits for what is refused is refused. Also at the beginning.
  static void Spread(std::span<const GraphJob> jobs, std::vector<absl::Status>& refused) {
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

 private:
  absl::Status WriteJobs(GraphResult& result) {
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
  bool Refuse(const GraphResult& result) {
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
  bool IsNew(const GraphResult& result, size_t at) const {
    return refused_[at].ok() && result.jobs[at].status.ok() && !result.jobs[at].duplicate && !result.jobs[at].existing;
  }

  struct Edge {
    JobId awaited;
    size_t waiting;
  };

  static std::set<JobId> AwaitedOf(const std::vector<Edge>& edges) {
    std::set<JobId> ids;
    for (const Edge& edge : edges) ids.insert(edge.awaited);
    return ids;
  }

  // Marks those of `ids` that are live, and notes them as known; the others are returned.
  absl::StatusOr<std::vector<JobId>> Await(const std::set<JobId>& ids, std::set<JobId>& known) {
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
  absl::Status ReadEnded(const std::vector<JobId>& gone, const MovedJobs& moved, std::set<JobId>& known,
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

  absl::StatusOr<bool> WriteDependencies(GraphResult& result) {
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
    for (std::set<JobId> ask = AwaitedOf(edges); !ask.empty();) {
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

  Transaction& tx_;
  const std::span<const GraphJob> jobs_;
  std::vector<absl::Status>& refused_;
};

// One look at who waits for jobs that have ended.
class Resolution {
 public:
  Resolution(Transaction& tx, int32_t queue) : tx_(tx), queue_(queue) {}

  absl::StatusOr<ResolveResult> Run(std::span<const int64_t> asked) {
    TENURE_RETURN_IF_ERROR(ReadDependents(asked));
    if (!waiting_.empty()) {
      TENURE_RETURN_IF_ERROR(ReadEnds());
      TENURE_RETURN_IF_ERROR(LockWaiting());
      TENURE_RETURN_IF_ERROR(Count());
      TENURE_RETURN_IF_ERROR(Decide());
    }
    TENURE_RETURN_IF_ERROR(tx_.Commit());
    result_.again.assign(again_.begin(), again_.end());
    return std::move(result_);
  }

 private:
  absl::Status ReadDependents(std::span<const int64_t> asked) {
    TENURE_ASSIGN_OR_RETURN(const Result rows,
                            tx_.Run(sql::kDependents, Params().AddArray(asked).Add(queue_).Add(kRowsPerLook)));
    for (int row = 0; row < rows.rows(); ++row) {
      days_[rows.Int(row, 0)] = rows.Int32(row, 1);
      waiting_[rows.Int32(row, 3)][rows.Int(row, 2)].insert(rows.Int(row, 0));
    }
    if (rows.rows() == kRowsPerLook) again_.insert(asked.begin(), asked.end());
    return absl::OkStatus();
  }

  // How those that have ended did; who waits for one that was moved is sent after it.
  absl::Status ReadEnds() {
    Params params;
    params.Add(queue_).AddArray(days_, [](const auto& d) { return d.first; });
    TENURE_ASSIGN_OR_RETURN(const Result live, tx_.Run(sql::kResolveLive, params));
    std::map<int64_t, int32_t> gone = days_;
    for (int row = 0; row < live.rows(); ++row) gone.erase(live.Int(row, 0));
    if (gone.empty()) return absl::OkStatus();
    int32_t earliest = std::numeric_limits<int32_t>::max();
    for (const auto& [id, day] : gone) {
      ends_[id] = kOutcomeUnknown;
      earliest = std::min(earliest, day);
    }
    TENURE_ASSIGN_OR_RETURN(
        const Result ended,
        tx_.Run(sql::kResolveEnded,
                Params().AddArray(gone, [](const auto& g) { return g.first; }).Add(earliest - kDaysTo2000)));
    for (int row = 0; row < ended.rows(); ++row) ends_[ended.Int(row, 0)] = ended.Int32(row, 1);
    return FollowMoved();
  }

  // A dead letter counts as it ended, whatever becomes of it later.
  absl::Status FollowMoved() {
    std::vector<JobId> cancelled;
    for (const auto& [id, outcome] : ends_) {
      if (outcome == static_cast<int32_t>(JobState::kCancelled)) cancelled.push_back({queue_, days_.at(id), id});
    }
    TENURE_ASSIGN_OR_RETURN(const MovedJobs moved, MovedTo(tx_, cancelled));
    for (const auto& [id, to] : moved) {
      const std::vector<int64_t> ids{to.seq};
      const std::vector<int32_t> days{to.day};
      tx_.Queue(sql::kAwaitJobs, Params().Add(to.queue).AddArray(ids).AddArray(days));
      tx_.Queue(sql::kFollowMoved, Params().Add(id.seq).Add(to.seq).Add(to.queue).Add(to.day));
      // It may have ended by now.
      result_.look[to.queue].push_back(AwaitedName(to.seq));
      ends_.erase(id.seq);
    }
    return absl::OkStatus();
  }

  absl::Status LockWaiting() {
    for (const auto& [queue, of_queue] : waiting_) {
      TENURE_ASSIGN_OR_RETURN(
          const Result rows,
          tx_.Run(sql::kLockWaiting, Params().Add(queue).AddArray(of_queue, [](const auto& w) { return w.first; })));
      for (int row = 0; row < rows.rows(); ++row) {
        const int64_t id = rows.Int(row, 0);
        if (rows.Bool(row, 1)) {
          locked_[id] = queue;
        } else if (!rows.Bool(row, 2)) {
          over_.push_back(id);
        } else {
          for (int64_t awaited : of_queue.at(id)) {
            if (ends_.contains(awaited)) again_.insert(awaited);
          }
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Count() {
    if (!over_.empty()) tx_.Queue(sql::kDropDependencies, Params().AddArray(over_));
    if (locked_.empty() || ends_.empty()) return absl::OkStatus();
    tx_.Queue(sql::kCountEnds, Params()
                                   .AddArray(ends_, [](const auto& e) { return e.first; })
                                   .AddArray(ends_, [](const auto& e) { return e.second; })
                                   .AddArray(locked_, [](const auto& l) { return l.first; }));
    return absl::OkStatus();
  }

  absl::Status Decide() {
    if (locked_.empty() || ends_.empty()) return absl::OkStatus();
    TENURE_ASSIGN_OR_RETURN(
        const Result rows,
        tx_.Run(sql::kDependencySums, Params().AddArray(locked_, [](const auto& l) { return l.first; })));
    std::map<int32_t, std::vector<int64_t>> released;
    std::map<std::pair<int32_t, std::string>, std::vector<int64_t>> cancelled;
    std::vector<int64_t> decided;
    for (int row = 0; row < rows.rows(); ++row) {
      const int64_t id = rows.Int(row, 0);
      const bool failed = !rows.IsNull(row, 4) && !rows.Bool(row, 2), release = rows.Bool(row, 3);
      if (!failed && rows.Int(row, 1) > 0) continue;
      decided.push_back(id);
      if (!failed || release) {
        released[locked_.at(id)].push_back(id);
      } else {
        const JobId on{rows.Int32(row, 5), rows.Int32(row, 6), rows.Int(row, 4)};
        cancelled[{locked_.at(id), WhyCancelled(on, rows.Int32(row, 7))}].push_back(id);
      }
    }
    for (auto& [queue, ids] : released) TENURE_RETURN_IF_ERROR(Release(queue, ids));
    for (auto& [why, ids] : cancelled) TENURE_RETURN_IF_ERROR(Cancel(why.first, why.second, ids));
    if (!decided.empty()) tx_.Queue(sql::kDropDependencies, Params().AddArray(decided));
    return absl::OkStatus();
  }

  static std::string WhyCancelled(const JobId& on, int32_t outcome) {
    std::string how = "ended in a way that is not on record any more";
    switch (static_cast<JobState>(outcome)) {
      case JobState::kDiscarded:
        how = "was discarded";
        break;
      case JobState::kCancelled:
        how = "was cancelled";
        break;
      case JobState::kExpired:
        how = "expired";
        break;
      default:
        break;
    }
    return absl::StrCat("it depends on job ", on.ToString(), ", which ", how);
  }

  absl::Status Release(int32_t queue, std::vector<int64_t>& ids) {
    std::sort(ids.begin(), ids.end());
    TENURE_ASSIGN_OR_RETURN(const Result rows, tx_.Run(sql::kReleaseWaiting, Params().Add(queue).AddArray(ids)));
    const int id = rows.Column("id"), state = rows.Column("state"), priority = rows.Column("priority"),
              rank = rows.Column("rank"), due_in = rows.Column("due_in"), xid = rows.Column("xid");
    const GateReader gates(rows);
    std::map<int16_t, ReadyRange> ready;
    for (int row = 0; row < rows.rows(); ++row) {
      result_.xid = static_cast<uint64_t>(rows.Int(row, xid));
      ++result_.released;
      switch (static_cast<JobState>(rows.Int(row, state))) {
        case JobState::kReady:
          AddToRange(ready, queue, static_cast<int16_t>(rows.Int(row, priority)),
                     {rows.Int(row, rank), rows.Int(row, id)});
          break;
        case JobState::kScheduled: {
          const absl::Duration from_now = absl::Seconds(rows.Double(row, due_in));
          if (!result_.earliest_due || from_now < *result_.earliest_due) result_.earliest_due = from_now;
          break;
        }
        default:
          gates.Add(row, result_.look[queue]);
          result_.look[queue].emplace_back("q");
      }
    }
    for (const auto& [unused, range] : ready) result_.ready.push_back(range);
    return absl::OkStatus();
  }

  // Who waits for one of these is looked at next.
  absl::Status Cancel(int32_t queue, const std::string& why, std::vector<int64_t>& ids) {
    std::sort(ids.begin(), ids.end());
    TENURE_ASSIGN_OR_RETURN(const Result live, tx_.Run(sql::kResolveLive, Params().Add(queue).AddArray(ids)));
    std::map<int64_t, int32_t> days;
    for (int row = 0; row < live.rows(); ++row) days[live.Int(row, 0)] = live.Int32(row, live.Column("day"));
    Params params;
    params.Add(queue).AddArray(days, [](const auto& d) { return d.first; }).Add(why).AddArray(days, [](const auto& d) {
      return d.second;
    });
    TENURE_ASSIGN_OR_RETURN(const Result rows, tx_.Run(sql::kCancel, params));
    const GateReader gates(rows);
    for (int row = 0; row < rows.rows(); ++row) {
      ++result_.cancelled;
      result_.ended.push_back({queue, days.at(rows.Int(row, 0)), rows.Int(row, 0)});
      gates.Add(row, result_.look[queue]);
    }
    return absl::OkStatus();
  }

  Transaction& tx_;
  const int32_t queue_;
  ResolveResult result_;
  std::map<int64_t, int32_t> days_;                                  // Of those that somebody waits for.
  std::map<int64_t, int32_t> ends_;                                  // Of those that have ended: the state.
  std::map<int32_t, std::map<int64_t, std::set<int64_t>>> waiting_;  // Queue, job: what it waits for.
  std::map<int64_t, int32_t> locked_;                                // Job: its queue.
  std::vector<int64_t> over_;                                        // They wait no more.
  std::set<int64_t> again_;
};

}  // namespace

absl::StatusOr<GraphResult> PostgresStore::EnqueueGraph(std::span<const GraphJob> jobs) {
  std::vector<absl::Status> refused;
  for (const GraphJob& job : jobs) refused.push_back(job.refused);
  GraphEnqueue::Spread(jobs, refused);
  for (;;) {
    GraphResult result;
    auto done = Run<bool>("enqueue_graph", Transaction::Limits{options_.statement_timeout, kKeyWait},
                          [&](Transaction& tx) -> absl::StatusOr<bool> {
                            result = GraphResult();
                            TENURE_ASSIGN_OR_RETURN(const bool written, GraphEnqueue(tx, jobs, refused).Write(result));
                            if (!written) return false;  // Undone: the transaction ends here.
                            TENURE_RETURN_IF_ERROR(tx.Commit());
                            return true;
                          });
    if (SqlStateOf(done.status()) == "55P03") {
      Metrics::Add(metrics_.db_retries, {{"reason", "lock_timeout"}});
      return MakeError(
          absl::StatusCode::kUnavailable, "JOB_LOCKED",
          "another transaction holds a job that one of these waits for, or a key of one of them; try again", {},
          absl::Milliseconds(200));
    }
    if (!done.ok()) return done.status();
    if (!*done) {
      // Whoever waits for what turned out to be refused goes with it.
      GraphEnqueue::Spread(jobs, refused);
      continue;
    }
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (!refused[i].ok()) result.jobs[i].status = refused[i];
    }
    return result;
  }
}

absl::StatusOr<ResolveResult> PostgresStore::ResolveDependents(int32_t queue, std::span<const int64_t> ended) {
  return Run<ResolveResult>("resolve_dependents", [&](Transaction& tx) { return Resolution(tx, queue).Run(ended); });
}

absl::StatusOr<DependencyPage> PostgresStore::SweepDependencies(const DependencyPage::Cursor& after, int limit) {
  TENURE_ASSIGN_OR_RETURN(const Result rows,
                          RunOne("sweep_dependencies", sql::kSweepDependencies,
                                 Params().Add(after.awaited).Add(after.job).Add(static_cast<int64_t>(limit))));
  DependencyPage page;
  std::set<int64_t> over;
  for (int row = 0; row < rows.rows(); ++row) {
    if (!rows.Bool(row, 4)) {
      over.insert(rows.Int(row, 2));
    } else if (rows.Bool(row, 3)) {
      GateNames& names = page.ended[rows.Int32(row, 1)];
      const std::string name = AwaitedName(rows.Int(row, 0));
      if (names.empty() || names.back() != name) names.push_back(name);
    }
  }
  if (!over.empty()) {
    page.dropped = static_cast<int>(over.size());
    TENURE_RETURN_IF_ERROR(RunOne("drop_dependencies", sql::kDropDependencies, Params().AddArray(over)).status());
  }
  if (rows.rows() == limit) page.next = DependencyPage::Cursor{rows.Int(limit - 1, 0), rows.Int(limit - 1, 2)};
  return page;
}

}  // namespace tenure::store::postgres
