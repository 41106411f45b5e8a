// Reading of the list of workers. Layer: client/cli. Not thread-safe.
#include "client/cli/queue_watch.h"

#include <algorithm>

#include "client/cli/values.h"

namespace tenure::cli {
namespace {

// The daemon's longest poll is 60 s: a worker that is alive claims again after that. The slack covers the time that a
// replica takes to write down whom it saw, and clocks that differ.
constexpr absl::Duration kSeenLately = absl::Seconds(90);
constexpr int kQueuesKept = 20;  // Of each worker, by the daemon.

}  // namespace

absl::StatusOr<bool> IsPolled(Context& context, const std::string& queue) {
  v1::ListWorkersRequest request;
  do {
    const auto response = context.connection().ListWorkers(request);
    if (!response.ok()) return response.status();
    for (const v1::Worker& worker : response->workers()) {
      const bool alive = worker.leased_jobs() > 0 || FromProto(worker.last_claim_time()) > absl::Now() - kSeenLately;
      const bool takes = worker.queues_size() >= kQueuesKept ||
                         std::find(worker.queues().begin(), worker.queues().end(), queue) != worker.queues().end();
      if (alive && takes) return true;
    }
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty());
  return false;
}

}  // namespace tenure::cli
