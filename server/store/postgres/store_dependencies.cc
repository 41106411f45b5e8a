// PostgresStore: jobs that wait for others. A graph is accepted in one transaction; who waits is let go, or cancelled,
// in transactions of its own after a job has ended, by whichever replica looks.
//
// Who decides on a waiting job holds its row, and reads what it waits for in a later statement. So of two jobs that end
// at the same moment the one whose end is counted last sees both, and nobody decides twice.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/graph_enqueue.h"
#include "server/store/postgres/job_params.h"
#include "server/store/postgres/moved_jobs.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

constexpr int32_t kDaysTo2000 = 10957;
// Rows that one look reads.
constexpr int64_t kRowsPerLook = 1000;
// How often a graph that is held up is tried whole before it is looked who stands in its way, and how often in all.
constexpr int kGraphPatience = 3;
constexpr int kGraphTries = 6;
// What is held then is held for too long.
constexpr absl::Duration kProbeWait = absl::Milliseconds(2);
// A job whose record is gone ended in a way that nobody can tell any more.
constexpr int32_t kOutcomeUnknown = 0;

using MovedJobs = std::map<JobId, JobId>;

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
  for (int held_up = 0;;) {
    GraphResult result;
    auto done = Run<bool>("enqueue_graph", Transaction::Limits{options_.statement_timeout, kKeyWait},
                          [&](Transaction& tx) -> absl::StatusOr<bool> {
                            result = GraphResult();
                            TENURE_ASSIGN_OR_RETURN(const bool written, GraphEnqueue(tx, jobs, refused).Write(result));
                            if (!written) return false;  // Undone: the transaction ends here.
                            TENURE_RETURN_IF_ERROR(tx.Commit());
                            return true;
                          });
    if (SqlStateOf(done.status()) == kLockNotAvailable) {
      Metrics::Add(metrics_.db_retries, {{"reason", "lock_timeout"}});
      // Another replica is done soon; whoever is not has the jobs refused that need what he holds.
      if (++held_up < kGraphPatience) continue;
      if (held_up > kGraphTries) {
        return MakeError(absl::StatusCode::kUnavailable, "JOB_LOCKED",
                         "other transactions hold, by turns, jobs that these wait for, or keys of theirs; try again",
                         {}, absl::Milliseconds(200));
      }
      TENURE_RETURN_IF_ERROR(RefuseHeldUp(jobs, refused));
      GraphEnqueue::Spread(jobs, refused);
      continue;
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

absl::Status PostgresStore::RefuseHeldUp(std::span<const GraphJob> jobs, std::vector<absl::Status>& refused) {
  const GraphLocks locks(jobs, refused);
  std::vector<size_t> places(locks.size());
  std::iota(places.begin(), places.end(), size_t{0});
  const auto probe = [&](std::span<const size_t> part) {
    return Run<bool>("enqueue_graph", Transaction::Limits{options_.statement_timeout, kProbeWait},
                     [&](Transaction& tx) -> absl::StatusOr<bool> {
                       TENURE_RETURN_IF_ERROR(locks.Take(tx, part));
                       return true;  // Undone: the transaction ends here.
                     })
        .status();
  };
  return SplitOnLockTimeout(places, probe, [&](size_t place) { locks.Refuse(place, refused); });
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
