// See claim_size.h.
#include "claim_size.h"

#include <algorithm>
#include <map>

namespace tenure::client::internal {
namespace {

constexpr int kMaxJobsPerClaim = 1'000;

}  // namespace

ClaimSize SizeClaim(const SlotLimits& limits, int slots, int prefetch, int shared_free, const PoolLoad& load) {
  ClaimSize size;
  const int room = std::min(slots - load.running, shared_free) + prefetch - load.waiting;
  const bool idle = load.waiting < std::min(slots - load.running, shared_free);
  if (room <= 0 || (!idle && room < std::clamp(prefetch / 2, 1, kMaxJobsPerClaim))) return size;
  size.max_jobs = std::min(room, kMaxJobsPerClaim);
  std::map<int, int, std::greater<>> reserved;  // Highest priority first.
  for (const SlotReservation& kept : limits.reservations) reserved[kept.min_priority] += kept.slots;
  int above = 0;  // Reserved by the configuration at or above the priority at hand.
  int sent = 0;   // The same in this claim.
  for (const auto& [priority, kept] : reserved) {
    above += kept;
    const int allowed = std::max(0, limits.slots - above + prefetch - load.held_below(priority));
    const int open = std::min(size.max_jobs, allowed);
    const int needed = std::max(0, size.max_jobs - open - sent);
    if (needed > 0) size.reservations.push_back({priority, needed});
    sent += needed;
    size.open_below.push_back(size.max_jobs - sent);
  }
  return size;
}

bool OpensUp(const ClaimSize& sent, const ClaimSize& now) {
  if (now.max_jobs == 0) return false;
  for (size_t i = 0; i < sent.open_below.size() && i < now.open_below.size(); ++i) {
    if (sent.open_below[i] == 0 && now.open_below[i] > 0) return true;
  }
  return false;
}

}  // namespace tenure::client::internal
