// KeeperCore: the part of a LeaseKeeper that its thread and its calls under way share. Layer: client. Thread-safe.
//
// The timetable maps an instant to the leases that must be looked at then: to extend them, or to notice that they ran
// out. Jobs of one claim, and leases of one Extend, share their instant, so it has far fewer entries than there are
// leases.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "calls.h"
#include "tenure/lease_keeper.h"

namespace tenure::client::internal {

class KeeperCore : public std::enable_shared_from_this<KeeperCore> {
 public:
  using Lease = std::shared_ptr<HeldLease>;

  // `extend_calls` and the like are counted by the caller through these hooks; any may be empty.
  struct Counters {
    std::function<void()> extend_sent;
  };

  KeeperCore(std::shared_ptr<Connection> connection, LeaseKeeperOptions options, Counters counters = {});

  void Start();
  // Joins the thread and waits for hooks that run; answers that come later are dropped. Not to be called from a hook.
  void Stop();

  Lease Hold(std::string token, Duration lease_duration, SteadyTime sent);
  void Forget(const Lease& lease);
  void Report(const Lease& lease, LeaseState state, const absl::Status& why);
  void SetProgress(const Lease& lease, Progress progress);
  size_t size() const;

 private:
  struct Change {
    Lease lease;
    absl::Status why;
  };

  void Loop();
  // Looks at everything whose instant has come; fills `due` with what to extend and `changes` with what ran out.
  void Sweep(SteadyTime now, std::vector<Lease>* due, std::vector<Change>* changes);
  void Send(std::vector<Lease> leases);
  void OnAnswer(const std::vector<Lease>& leases, SteadyTime sent, const absl::Status& status,
                v1::ExtendRequest& request, v1::ExtendResponse& response);
  // Puts the lease where the timetable will look at it next. Requires mutex_.
  void Place(const Lease& lease);
  void Remove(const Lease& lease);
  // Requires mutex_. True if the state changed; the caller announces it after unlocking.
  bool Enter(const Lease& lease, LeaseState state);
  void Announce(const std::vector<Change>& changes);

  const std::shared_ptr<Connection> connection_;
  const LeaseKeeperOptions options_;
  const Counters counters_;
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_.
  std::map<SteadyTime, std::list<Lease>> timetable_;
  size_t size_ = 0;
  SteadyTime planned_ = SteadyTime::max();  // When the thread will look next.
  int failures_ = 0;                        // Extend calls that failed in a row.
  int announcing_ = 0;                      // Threads that run hooks outside the lock.
  bool stopping_ = false;
};

}  // namespace tenure::client::internal
