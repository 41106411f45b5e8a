// Callers of Get that wait for a job to end. Layer: engine. Thread-safe.
//
// A waiter is registered before the job is read, so that an end in between is not missed. Ends are learned from this
// replica's own settles at once, and from the events of the others: when a queue's counts say that something ended
// there, the jobs waited for in it are asked about, in one statement. Who waits for a job that is moved waits for the
// job that it becomes.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "server/engine/engine.h"
#include "server/engine/executor.h"
#include "server/engine/timers.h"
#include "server/store/store.h"

namespace tenure::engine {

class OutcomeWaiters {
 public:
  OutcomeWaiters(store::Store& store, Executor& executor, Timers& timers, const Options& options)
      : store_(store), executor_(executor), timers_(timers), options_(options) {}

  std::shared_ptr<PollHandle> Wait(const store::JobId& id, absl::Duration wait, Deadline deadline,
                                   Callback<store::Job> done);
  // The job, or the one that it has become by moves (blocks).
  absl::StatusOr<store::Job> Read(store::JobId id);
  void Ended(const std::vector<store::JobId>& ids);
  // Something ended in the queue, which jobs is not known.
  void EndedSomewhere(int32_t queue);
  // Everybody gets the job as it stands.
  void Drain();
  size_t parked() const;

 private:
  struct Waiter;
  class Handle;
  using WaiterPtr = std::shared_ptr<Waiter>;

  bool Remove(const WaiterPtr& waiter);
  void Unlist(const WaiterPtr& waiter);
  void ReadAndAnswer(const WaiterPtr& waiter);
  void AnswerIfEnded(const WaiterPtr& waiter);

  store::Store& store_;
  Executor& executor_;
  Timers& timers_;
  const Options options_;
  mutable std::mutex mu_;
  std::map<int32_t, std::map<store::JobId, std::vector<WaiterPtr>>> waiters_;  // By queue.
  std::set<int32_t> asking_;     // A look at these queues is under way ...
  std::set<int32_t> ask_again_;  // ... and another was asked for meanwhile.
  size_t parked_ = 0;
};

}  // namespace tenure::engine
