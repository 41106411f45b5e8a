// The shards that one run of a worker holds: keeps them, follows the replicas that come and go, and gives up a shard
// whose work fails. Layer: background. Thread-safe.
//
// A thread of its own looks several times a second what this replica should hold (store/shards.h), so a loop that is
// busy for long loses nothing. What PostgreSQL granted counts here, on the process's monotonic clock, from when the
// request for it was SENT; when that time is over, Held no longer names it, whatever the thread is doing. As with
// leader leases it is PostgreSQL that keeps two replicas from both writing: each write names its term.
#pragma once

#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/background/wake_up.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/store/store.h"

namespace tenure::background {

class ShardLeases {
 public:
  struct Options {
    std::string worker;
    absl::Duration lease;     // How long the shards of a replica that vanished stay without work.
    absl::Duration interval;  // Between two looks.
    // Runs when what is held has changed, on the leases' own thread; must not block.
    std::function<void(bool holds_any, int64_t highest_term)> changed;
    // The work of a shard failed, and it was given up; `panic`: it threw (counted and logged already).
    std::function<void(const absl::Status& status, bool panic)> failed;
    // The database refused or could not be asked; OK when it answers again.
    std::function<void(const absl::Status&)> asked;
  };

  // `replica` tells the number under which this process is registered, 0 while it is not: nothing is held then. Starts
  // at once.
  ShardLeases(store::Store& store, Clock& clock, Metrics& metrics, std::function<int32_t()> replica, Options options);
  // Gives everything up, so that others take over, and waits until that is done or has failed.
  ~ShardLeases();
  ShardLeases(const ShardLeases&) = delete;
  ShardLeases& operator=(const ShardLeases&) = delete;

  // Tells the thread to give everything up and to end; returns at once. Work that is under way is refused by
  // PostgreSQL from then on. Idempotent.
  void RequestLeave();

  // The ranges that are held now, in order.
  std::vector<store::ShardFence> Held() const;

  // Runs the work of one shard. If it throws, or fails other than because the database is away or the term is over,
  // that shard is given up, and this run's other shards go on. Returns what `work` did; what was thrown comes as
  // INTERNAL.
  absl::Status RunShard(const store::ShardFence& fence, int shard, const std::function<absl::Status()>& work);

  // A write was refused because a term is over: look again at once.
  void Refresh() { wake_.Notify(); }
  // Waits until what is held changes, at most until `deadline`. One thread at a time.
  void AwaitChange(Clock::TimePoint deadline, const std::stop_token& stop) { changed_.WaitUntil(deadline, stop); }

 private:
  struct Range {
    store::ShardFence fence;
    Clock::TimePoint until;
  };
  void Keep(const std::stop_token& stop);
  void Look(int32_t replica);
  void Leave();
  void GiveUp(const store::ShardFence& fence, int shard, std::string_view error);
  // Replaces what is held; logs and tells if it is another set of shards or terms.
  void Take(std::vector<Range> held, int32_t replica);

  store::Store& store_;
  Clock& clock_;
  Metrics& metrics_;
  prometheus::Gauge& shards_gauge_;
  const std::function<int32_t()> replica_;
  const Options options_;
  WakeUp wake_;
  WakeUp changed_;

  mutable std::mutex mutex_;
  std::vector<Range> held_;  // From here on guarded by mutex_.
  int32_t holder_ = 0;       // The replica under whose number it is held.
  std::string logged_;       // The shards that the log has last told of.
  std::jthread thread_;      // Last: it uses the rest.
};

}  // namespace tenure::background
