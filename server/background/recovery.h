// What the reaper does for a range of shards: ends the leases that replicas granted which are gone. Layer: background.
// Thread-safe.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace tenure::background {

// Runs the work of one queue, and may keep its failure from the other queues' (ShardLeases::RunShard).
using QueueGuard = std::function<absl::Status(int32_t queue, const std::function<absl::Status()>& work)>;

// Returns to ready, or to the dead letters, what has run out of vanished replicas' leases in the fence's shards, at
// most `limit` leases in a transaction, and forgets their grants once none of their leases stands. A queue that fails,
// but for a database that is away, does not keep the others from it. TERM_OVER is not told apart: what is not held any
// more is left alone.
absl::StatusOr<store::RecoverResult> RecoverVanished(
    store::Store& store, const store::ShardFence& fence, int limit,
    const QueueGuard& guard = [](int32_t, const std::function<absl::Status()>& work) { return work(); });

}  // namespace tenure::background
