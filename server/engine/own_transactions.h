// The transactions of this replica whose ready jobs its own claims know of already: their events need not send a claim
// over the same stretch a second time, past all that was taken from it meanwhile. Layer: engine. Thread-safe.
//
// Best effort: one that is forgotten too early, or noted too late, only costs that second look.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <utility>

namespace tenure::engine {

class OwnTransactions {
 public:
  // `xid` 0 (not known) is left out.
  void Note(uint64_t xid) {
    if (xid == 0) return;
    const std::lock_guard<std::mutex> lock(mu_);
    newer_.insert(xid);
  }
  bool Contains(uint64_t xid) const {
    const std::lock_guard<std::mutex> lock(mu_);
    return newer_.contains(xid) || older_.contains(xid);
  }
  // Events have been read: forgets what was noted before the reading that came before it.
  void Turn() {
    const std::lock_guard<std::mutex> lock(mu_);
    older_ = std::exchange(newer_, {});
  }

 private:
  mutable std::mutex mu_;
  std::unordered_set<uint64_t> newer_, older_;
};

}  // namespace tenure::engine
