// How large a claim may be: free slots plus prefetch, and which of them are kept for urgent jobs. Layer: client. Pure
// functions.
#pragma once

#include <functional>
#include <vector>

#include "tenure/limiter.h"

namespace tenure::client::internal {

// What a pool holds when it sizes a claim.
struct PoolLoad {
  int running = 0;  // Handlers.
  int waiting = 0;  // Claimed, not started.
  // Of both, how many have a priority below that of a reservation.
  std::function<int(int min_priority)> held_below = [](int) { return 0; };
};

struct ClaimSize {
  int max_jobs = 0;  // 0: do not claim.
  std::vector<SlotReservation> reservations;
  // For each min_priority among the limits, highest first: how many jobs below it the claim may bring.
  std::vector<int> open_below;
};

// Claims while a slot is idle, or when half of the prefetch is used up or there is room for the largest claim, so that
// a busy pool's claims stay large.
// `shared_free` is how many slots a limiter that several pools share has left (the pool's own: slots - running).
// Formula for each min_priority t: jobs below t may hold slots - (slots reserved at or above t) + prefetch at once.
ClaimSize SizeClaim(const SlotLimits& limits, int slots, int prefetch, int shared_free, const PoolLoad& load);

// True if a claim under way keeps out jobs that there is room for now: it is then better sent anew.
bool OpensUp(const ClaimSize& sent, const ClaimSize& now);

}  // namespace tenure::client::internal
