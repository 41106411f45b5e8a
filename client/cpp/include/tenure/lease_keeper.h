// LeaseKeeper: extends a set of leases in the background until each is forgotten, and says at once when one is lost.
// WorkerPool is built on it; so can a loop of your own be. Public header of tenure::client. Thread-safe.
//
// Rules: a lease is extended when a third of it has passed since the last successful Extend was SENT (monotonic clock),
// all that are due in one call. If none succeeded for a whole lease it may be somebody else's: its stop_token is
// triggered (kRunOut), but it is extended on, for its token may still be the current one and its settle still be
// accepted.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "tenure/client.h"
#include "tenure/lease.h"

namespace tenure::client {

namespace internal {
class KeeperCore;
}  // namespace internal

enum class LeaseState {
  kHeld,              // As far as is known.
  kRunOut,            // No Extend succeeded for a whole lease; a settle may still be accepted.
  kLost,              // The daemon said so: the token is stale.
  kCancelled,         // The job was cancelled.
  kSettledElsewhere,  // The token has settled the job (tenure.complete): no longer extended; nothing is stopped.
};

// One lease in a keeper's care. Thread-safe.
class HeldLease {
 public:
  const std::string& token() const { return token_; }
  LeaseState state() const { return state_.load(std::memory_order_acquire); }
  // Triggered when the lease leaves kHeld for kRunOut, kLost or kCancelled, and by RequestStop.
  std::stop_token stop_token() const { return stop_.get_token(); }
  // Asks the holder to stop for a reason of your own (shutdown, say). The lease is kept.
  void RequestStop() { stop_.request_stop(); }
  // Until when the lease is known to be held unless it is extended; moves on with each extension.
  SteadyTime end() const { return SteadyTime(SteadyTime::duration(end_.load(std::memory_order_relaxed))); }

 private:
  friend class internal::KeeperCore;
  explicit HeldLease(std::string token) : token_(std::move(token)) {}

  const std::string token_;
  std::atomic<LeaseState> state_{LeaseState::kHeld};
  std::atomic<SteadyTime::rep> end_{0};
  std::stop_source stop_;
  // Guarded by the keeper's mutex.
  Duration lease_{};
  SteadyTime sent_;  // When the last Extend (or claim) that succeeded was sent.
  SteadyTime due_;   // When to extend next.
  SteadyTime slot_;  // The place in the keeper's timetable; valid with `place_` while it is tended.
  std::list<std::shared_ptr<HeldLease>>::iterator place_;
  bool tended_ = false;
  bool in_flight_ = false;
  std::optional<Progress> progress_;  // Reported, not sent yet.
};

struct LeaseKeeperOptions {
  Duration lease = std::chrono::seconds(30);             // What each Extend asks for.
  Duration progress_interval = std::chrono::seconds(1);  // A job's progress is sent at most so often.
  // Called once when a lease leaves kHeld, on a thread of the keeper or of gRPC; must not block. `why` is the daemon's
  // answer.
  std::function<void(const std::shared_ptr<HeldLease>& lease, const absl::Status& why)> on_change;
  // Called when an Extend call failed as a whole (it is repeated). Must not block.
  std::function<void(const absl::Status& error)> on_error;
};

class LeaseKeeper {
 public:
  explicit LeaseKeeper(Client client, LeaseKeeperOptions options = {});
  // Stops extending; waits for hooks that run, not for calls under way, whose answers are dropped. Not to be called
  // from a hook.
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  // Begins to extend the lease of a claimed job.
  std::shared_ptr<HeldLease> Hold(const ClaimedJob& job);
  // The same for a token: the lease lasts `lease_duration` from `sent`.
  std::shared_ptr<HeldLease> Hold(std::string lease_token, Duration lease_duration, SteadyTime sent);
  // No longer extends it: call it when the settle was acknowledged. Idempotent.
  void Forget(const std::shared_ptr<HeldLease>& lease);
  // Records what a notice or a settle's answer said about the lease: no longer extended, stop_token triggered (not for
  // kSettledElsewhere), on_change called. Does nothing if the lease has left kHeld for good before.
  void Report(const std::shared_ptr<HeldLease>& lease, LeaseState state, const absl::Status& why);
  // Sent with the next Extend, which comes within progress_interval.
  void SetProgress(const std::shared_ptr<HeldLease>& lease, Progress progress);
  // How many leases it extends.
  size_t size() const;

 private:
  std::shared_ptr<internal::KeeperCore> core_;
};

}  // namespace tenure::client
