// Many leases that one process holds and extends, as a worker with long jobs does. Layer: tests (benchmark). One
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "progress.h"
#include "tenure/client.h"
#include "tenure/lease_keeper.h"

namespace tenure::bench {

class HeldLeases {
 public:
  // Enqueues so many jobs in `queue`, claims them all, and extends their leases from then on.
  static absl::StatusOr<std::unique_ptr<HeldLeases>> Take(const client::Client& client, const std::string& queue,
                                                          int64_t count, double lease_seconds, Progress& progress);

  // Completes all of them; DATA_LOSS if a lease was lost, or a completion refused.
  absl::Status Complete();

 private:
  explicit HeldLeases(client::Client client) : client_(std::move(client)) {}

  client::Client client_;
  std::atomic<int64_t> lost_{0};
  std::vector<std::shared_ptr<client::HeldLease>> leases_;
  std::unique_ptr<client::LeaseKeeper> keeper_;  // Destroyed first: it uses the above.
};

}  // namespace tenure::bench
