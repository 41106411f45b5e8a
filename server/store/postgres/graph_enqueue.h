// Jobs that wait for others, on their way in: one attempt at accepting a graph, and finding out who stands in its way.
// Layer: store/postgres. Not thread-safe; one transaction each.
//
// What is refused before a graph is written is known beforehand: if writing refuses more, everything is undone and
// begun again without those and without who waits for them. What somebody holds locked (a job that is waited for, or a
// key) is found by probes that take the same locks and are undone.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/postgres/connection.h"
#include "server/store/store.h"

namespace tenure::store::postgres {

class GraphEnqueue {
 public:
  GraphEnqueue(Transaction& tx, std::span<const GraphJob> jobs, std::vector<absl::Status>& refused)
      : tx_(tx), jobs_(jobs), refused_(refused) {}

  // False: more was refused, begin again. Leaves the commit to the caller. May run into lock_timeout (55P03).
  absl::StatusOr<bool> Write(GraphResult& result);

  // Who waits for what is refused is refused. Also at the beginning.
  static void Spread(std::span<const GraphJob> jobs, std::vector<absl::Status>& refused);

 private:
  struct Edge {
    JobId awaited;
    size_t waiting;
  };

  absl::Status WriteJobs(GraphResult& result);
  bool Refuse(const GraphResult& result);
  bool IsNew(const GraphResult& result, size_t at) const;
  absl::StatusOr<bool> WriteDependencies(GraphResult& result);
  absl::StatusOr<std::vector<JobId>> Await(const std::set<JobId>& ids, std::set<JobId>& known);
  absl::Status ReadEnded(const std::vector<JobId>& gone, const std::map<JobId, JobId>& moved, std::set<JobId>& known,
                         GraphResult& result);

  Transaction& tx_;
  const std::span<const GraphJob> jobs_;
  std::vector<absl::Status>& refused_;
};

// What accepting a graph locks, and for which of its jobs.
class GraphLocks {
 public:
  // Those of the jobs that are not refused.
  GraphLocks(std::span<const GraphJob> jobs, std::span<const absl::Status> refused);

  size_t size() const { return locks_.size(); }
  // Takes some of them, by their places; for a transaction that is undone. 55P03 if somebody holds one.
  absl::Status Take(Transaction& tx, std::span<const size_t> places) const;
  // Refuses the jobs that need this one.
  void Refuse(size_t place, std::vector<absl::Status>& refused) const;

 private:
  struct Lock {
    int32_t queue = 0;
    const NewJob* unique = nullptr;  // Its unique key.
    std::string idempotency_key;
    std::optional<JobId> awaited;
    std::vector<size_t> jobs;
  };

  std::vector<Lock> locks_;
};

}  // namespace tenure::store::postgres
