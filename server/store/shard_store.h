// The part of the store that leases shards to the replicas that run a worker by shard (shards.h). Layer: store.
// Thread-safe; errors common to all methods as in store.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/shards.h"

namespace tenure::store {

class ShardStore {
 public:
  virtual ~ShardStore() = default;

  // Takes part in the worker's shards for another `lease`, renews what is held when a third of the lease has gone,
  // gives up what another replica should have, and takes what is free of this one's part. Returns what is held then, in
  // order. Safe to repeat, and meant to be: writes only if there is something to do. Nothing is held by a replica that
  // is not registered any more.
  virtual absl::StatusOr<std::vector<ShardLease>> LeaseShards(std::string_view worker, int32_t replica,
                                                              absl::Duration lease) = 0;
  // Gives up one shard of a held range, because its work failed with `error`: it rests (see FailShard), the rest of the
  // range stays held. FAILED_PRECONDITION / TERM_OVER if the range is not held any more as it was.
  virtual absl::Status GiveUpShard(const ShardFence& fence, int32_t replica, int shard, std::string_view error) = 0;
  // Gives up everything and takes part no longer, so that others take over at once. Idempotent.
  virtual absl::Status LeaveShards(std::string_view worker, int32_t replica) = 0;
};

}  // namespace tenure::store
