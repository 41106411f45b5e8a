// The leases that this replica granted, watched to their ends. Layer: engine. Thread-safe.
//
// A lease is ended by the store, by PostgreSQL's clock; here is only known when to look. Ends are kept in ticks of 100
// ms, and an extend moves the known end, not the entry: an entry that comes up early is put off, and every entry comes
// up within a minute. Settled leases are forgotten and their entries dropped as they come up, so that the watch is
// about as large as what is held, also where leases are long and jobs are short. What some other replica extended comes
// up, is found alive, and is put off.
//
// Each lease belongs to the grant by which its claim recorded it (tenure.lease_grant). A grant is over when none of its
// leases is watched any more and its claim cannot be repeated; then its record is dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/store/types.h"

namespace tenure::engine {

class LeaseWatch {
 public:
  explicit LeaseWatch(Clock& clock) : clock_(clock) {}

  // What a claim leased, and until when the claim may be repeated. A grant that is known already is left as it is.
  void AddGrant(int64_t grant, Clock::TimePoint keep_until,
                const std::vector<std::pair<store::LeaseRef, Clock::TimePoint>>& leases);
  // Watches again what was taken out by TakeDue.
  void PutBack(const store::LeaseRef& lease, Clock::TimePoint ends);
  // What was taken out by TakeDue stands no more.
  void Drop(const store::LeaseRef& lease);
  // Only if it is watched under this number.
  void Extend(const store::LeaseRef& lease, Clock::TimePoint ends);
  void Forget(int64_t id, int32_t number);
  // Takes out what may have ended by now, by queue. Whoever takes puts back, or drops, each of them. `held`: those
  // whose end is not near, about once a minute: whether they were settled elsewhere is worth a look.
  std::map<int32_t, std::vector<store::LeaseRef>> TakeDue(std::map<int32_t, std::vector<store::LeaseRef>>* held);
  // Takes out the grants that are over. Whoever cannot drop their records puts them back by AddGrant without leases.
  std::vector<int64_t> TakeOver();
  std::vector<int64_t> grants() const;
  size_t size() const;
  // Entries, those of settled leases that have not come up yet among them.
  size_t entries() const;

 private:
  struct Watched {
    store::LeaseRef lease;
    Clock::TimePoint ends;
  };
  struct Grant {
    size_t leases = 0;
    Clock::TimePoint keep_until;
  };
  using Tick = int64_t;
  static Tick TickOf(Clock::TimePoint time);
  // When to look at a lease that ends then.
  static Tick NextLook(Clock::TimePoint now, Clock::TimePoint ends);

  void Watch(const store::LeaseRef& lease, Clock::TimePoint ends);
  void WatchUnlessNewer(const store::LeaseRef& lease, Clock::TimePoint ends);
  void EndOf(int64_t grant);

  Clock& clock_;
  mutable std::mutex mu_;
  std::unordered_map<int64_t, Watched> leases_;
  std::unordered_map<int64_t, Grant> grants_;
  std::map<Tick, std::vector<std::pair<int64_t, int32_t>>> wheel_;  // (id, number): a stale entry is passed over.
};

}  // namespace tenure::engine
