// What a background worker is to the supervisor, and what the supervisor gives it. Layer: background (knows store's
// interface).
//
// A worker is built anew for every term, runs on a thread of its own, and returns when its stop token fires (shutdown,
// or its leader lease is lost). It may throw: that is a panic, which costs nothing but a restart of this worker. How to
// add one: docs/howto/add-a-background-worker.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/background/shard_leases.h"
#include "server/background/tunables.h"
#include "server/background/wake_up.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/store/store.h"

namespace tenure::background {

class PromoterSignal;
namespace targets {
struct Access;
}

// What workers are built from. All of it outlives the supervisor.
struct Dependencies {
  store::Store* store = nullptr;
  Clock* clock = nullptr;
  const Tunables* tunables = nullptr;
  // Told which jobs became ready, so that polls parked in this process need not wait for the events. Must not block.
  std::function<void(std::vector<store::ReadyRange>)> note_ready;
  // Told at which gates slots became free, or jobs now wait, so that they are looked at at once. Must not block.
  std::function<void(const store::GatesByQueue&)> note_gates;
  // Told by the engine when jobs are scheduled.
  PromoterSignal* promoter_signal = nullptr;
  Metrics* metrics = nullptr;
  // This replica, 0 while it is not registered.
  std::function<int32_t()> replica;
  // What the workers that serve targets may reach.
  const targets::Access* target_access = nullptr;
};

// One run of a worker: its term, its stop signal, and where it tells how it fares. Thread-safe.
class RunContext {
 public:
  // Where the supervisor hears of the run.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnRound(const absl::Status& status) = 0;
    // `what` is the text of the exception. The run is over: the listener makes the stop token fire.
    virtual void OnPanic(std::string_view what) = 0;
  };

  // `shards`: of a worker that holds leases by shard, else null.
  RunContext(store::Fence fence, std::stop_token stop, Clock& clock, Listener& listener, ShardLeases* shards = nullptr)
      : fence_(std::move(fence)),
        stop_(std::move(stop)),
        clock_(clock),
        listener_(listener),
        shards_(shards),
        wake_(clock) {}

  // The term, which every write of the run passes on. Term 0 if the worker holds leases by shard.
  const store::Fence& fence() const { return fence_; }
  // What a worker with Leadership::kOwnLeases holds. Only such a worker has it.
  ShardLeases& shards() const { return *shards_; }
  const std::stop_token& stop() const { return stop_; }
  bool stopped() const { return stop_.stop_requested(); }
  Clock& clock() const { return clock_; }

  // Waits; false if the run is to stop. One thread at a time.
  bool WaitUntil(Clock::TimePoint deadline);
  bool WaitFor(absl::Duration duration);

  // A round of the loop is over: counted, logged if it failed, and shown to operators (at most one write a second).
  void Report(const absl::Status& status) { listener_.OnRound(status); }

  // For a thread that the worker starts itself: runs `body`, and makes anything it throws a panic of this worker, which
  // stops the run. The worker must join its threads before Run returns.
  void Guard(const std::function<void()>& body);

 private:
  const store::Fence fence_;
  const std::stop_token stop_;
  Clock& clock_;
  Listener& listener_;
  ShardLeases* const shards_;
  WakeUp wake_;
};

class Worker {
 public:
  virtual ~Worker() = default;
  // The loop. OK when the stop token fired. An error, or OK before that, ends the term: the supervisor releases the
  // lease and starts anew after a pause; FAILED_PRECONDITION / TERM_OVER means that the lease was lost, and starts anew
  // at once.
  virtual absl::Status Run(RunContext& context) = 0;
};

// True for the error of a write that was refused because the leader's term is over.
bool IsTermOver(const absl::Status& status);

// The text of the exception that is being handled. Call it inside a catch block only.
std::string DescribeCurrentException();

// The usual loop: calls `round` and waits as long as it says (zero: at once, between two looks at the stop token). An
// error of a round is reported and the round repeated after 1 s, then 2 s, then 5 s: a database that is away must not
// make the worker sleep long when it is back. Returns OK when stopped, or TERM_OVER.
absl::Status RunRounds(RunContext& context, const std::function<absl::StatusOr<absl::Duration>()>& round);

// The loop of a worker by shard: calls `round` for each range that is held, and waits as long as the soonest says, or
// until other ranges are held. A round that was refused because its term is over is not one, and the ranges are looked
// at again at once. Errors as in RunRounds; those of single shards are ShardLeases::RunShard's. Returns OK when
// stopped.
absl::Status RunShardRounds(RunContext& context,
                            const std::function<absl::StatusOr<absl::Duration>(const store::ShardFence& held)>& round);

enum class Leadership {
  kOuterLease,  // The supervisor takes one leader lease for the worker: one replica runs it at a time.
  kOwnLeases,   // It runs on every replica that selected it; each holds a part of the shards (RunContext::shards).
};

// A row of the registry.
struct WorkerEntry {
  std::string_view name;  // File <name>_worker.cc, with _ for -.
  std::string_view help;
  Leadership leadership = Leadership::kOuterLease;
  // Jobs would stand still if nobody led it: /readyz warns.
  bool needed_for_liveness = false;
  std::span<const Tunable> tunables;
  std::function<std::unique_ptr<Worker>(const Dependencies& dependencies)> make;
};

}  // namespace tenure::background
