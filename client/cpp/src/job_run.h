// JobRun: one claimed job on its way through the pool; what a JobContext looks into. Layer: client.
// Thread-safety: claimed and lease are constant; phase, permit and loss_announced are guarded by the PoolRun's mutex;
// the rest by its own.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "keeper_core.h"
#include "pool_shared.h"
#include "tenure/worker_pool.h"

namespace tenure::client::internal {

enum class RunPhase {
  kWaiting,   // Claimed, not started.
  kRunning,   // In its handler.
  kSettling,  // The handler returned (or never ran); its settle is not acknowledged.
  kDone,
  kAbandoned,  // The pool has gone; the handler still runs. What it returns is dropped.
};

class JobRun : public std::enable_shared_from_this<JobRun> {
 public:
  JobRun(ClaimedJob job, std::shared_ptr<HeldLease> held, std::shared_ptr<PoolShared> pool,
         std::shared_ptr<KeeperCore> by)
      : claimed(std::move(job)), lease(std::move(held)), shared(std::move(pool)), keeper(std::move(by)) {}

  // Calls the handler and turns whatever it throws into an outcome.
  Outcome Execute(const Handler& handler);
  void AddFollowUp(JobSpec spec);
  std::vector<JobSpec> TakeFollowUps();

  const ClaimedJob claimed;
  const std::shared_ptr<HeldLease> lease;
  const std::shared_ptr<PoolShared> shared;
  const std::shared_ptr<KeeperCore> keeper;

  RunPhase phase = RunPhase::kWaiting;
  bool loss_announced = false;
  SlotPermit permit;
  SteadyTime began{};  // When its handler was started.
  std::atomic<bool> stopped_by_shutdown{false};

 private:
  std::mutex mutex_;
  std::vector<JobSpec> follow_ups_;  // Guarded by mutex_.
};

}  // namespace tenure::client::internal
