// One term of a background worker's leader lease: keeps it, and tells when it is lost. Layer: background. Thread-safe.
//
// How a term is kept. The lease is a row of the database with holder, term and expiry, all by PostgreSQL's clock; the
// term only grows, and every write of the worker is refused by PostgreSQL once its term is over. That fence alone keeps
// two leaders from both writing. What happens here only makes a leader that lost its lease stop soon:
//   - A thread of its own renews at a third of the lease, so that a loop which is busy for long cannot lose it.
//   - A successful renewal is worth one lease counted from when it was SENT, on the process's monotonic clock:
//   PostgreSQL set
//     the expiry later than that. When that time is over, the lease counts as lost, whatever the renewal under way is
//     doing (the renewing thread may hang in a dead connection). This needs a second thread, the watch, which never
//     calls anything that blocks; the supervisor has one for all terms.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/time/time.h"
#include "server/background/wake_up.h"
#include "server/base/clock.h"
#include "server/store/store.h"

namespace tenure::background {

// Calls back when a deadline passes that was not moved in time. One thread for all deadlines.
class DeadlineWatch {
 public:
  explicit DeadlineWatch(Clock& clock);

  // `expired` runs at most once, on the watch's thread; it must not block and not call this object.
  int Add(Clock::TimePoint deadline, std::function<void()> expired);
  // Moves a deadline; false if it has passed.
  bool Move(int id, Clock::TimePoint deadline);
  // After it returns, the callback neither runs nor will run.
  void Remove(int id);

 private:
  struct Item {
    Clock::TimePoint deadline;
    std::function<void()> expired;  // Empty once it ran.
  };
  void Run(const std::stop_token& stop);

  Clock& clock_;
  WakeUp wake_;
  std::mutex mutex_;
  std::map<int, Item> items_;  // Guarded by mutex_.
  int next_id_ = 0;            // Guarded by mutex_.
  std::jthread thread_;        // Last: it uses the rest.
};

class LeaderLease {
 public:
  // Holds `fence` from `sent`, when the request that got it was sent. Renews until destroyed. `renewed` runs after each
  // renewal, on the lease's own thread.
  LeaderLease(store::Store& store, Clock& clock, DeadlineWatch& watch, store::Fence fence, absl::Duration lease,
              Clock::TimePoint sent, std::function<void()> renewed);
  // Stops renewing; does not release. Waits for a renewal under way.
  ~LeaderLease();

  // Fires when the lease is lost.
  std::stop_token lost_token() const { return lost_.get_token(); }
  bool lost() const { return lost_.stop_requested(); }

 private:
  void Renew(const std::stop_token& stop);

  store::Store& store_;
  Clock& clock_;
  DeadlineWatch& watch_;
  const store::Fence fence_;
  const absl::Duration lease_;
  const Clock::TimePoint sent_;
  const std::function<void()> renewed_;
  std::stop_source lost_;
  WakeUp wake_;
  int watched_ = 0;
  std::jthread thread_;  // Last: it uses the rest.
};

}  // namespace tenure::background
