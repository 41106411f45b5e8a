// The leases that this replica granted, watched to their ends. Layer: engine. Thread-safe.
//
// A lease is ended by the store, by PostgreSQL's clock; here is only known when to look. Ends are kept in ticks of 100
// ms, and an extend moves the known end, not the entry: an entry that comes up early is put off, and every entry comes
// up within a minute. Settled leases are forgotten and their entries dropped as they come up, so that the watch is
// about as large as what is held, also where leases are long and jobs are short. What some other replica extended comes
// up, is found alive, and is put off.
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

  void Add(const store::LeaseRef& lease, Clock::TimePoint ends);
  // Only if it is watched under this number.
  void Extend(const store::LeaseRef& lease, Clock::TimePoint ends);
  void Forget(int64_t id, int32_t number);
  bool Knows(int64_t id, int32_t number) const;
  // Takes out what may have ended by now, by queue. Whoever takes puts back what still stands (Add).
  std::map<int32_t, std::vector<store::LeaseRef>> TakeDue();
  size_t size() const;
  // Entries, those of settled leases that have not come up yet among them.
  size_t entries() const;

 private:
  struct Watched {
    store::LeaseRef lease;
    Clock::TimePoint ends;
  };
  using Tick = int64_t;
  static Tick TickOf(Clock::TimePoint time);
  // When to look at a lease that ends then.
  static Tick NextLook(Clock::TimePoint now, Clock::TimePoint ends);

  Clock& clock_;
  mutable std::mutex mu_;
  std::unordered_map<int64_t, Watched> leases_;
  std::map<Tick, std::vector<std::pair<int64_t, int32_t>>> wheel_;  // (id, number): a stale entry is passed over.
};

}  // namespace tenure::engine
