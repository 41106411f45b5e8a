// RecoverVanished: see the header. Layer: background.
#include "server/background/recovery.h"

#include <algorithm>
#include <span>

#include "server/base/status.h"

namespace tenure::background {
namespace {

void Soonest(std::optional<absl::Duration>& soonest, const std::optional<absl::Duration>& other) {
  if (other && (!soonest || *other < *soonest)) soonest = other;
}

}  // namespace

absl::StatusOr<store::RecoverResult> RecoverVanished(store::Store& store, const store::ShardFence& fence, int limit,
                                                     const QueueGuard& guard) {
  store::RecoverResult result;
  store::Orphans page;
  do {
    TENURE_ASSIGN_OR_RETURN(page, store.ListOrphans(fence, page.last));
    Soonest(result.next_expiry, page.next_expiry);
    for (const auto& [queue, leases] : page.due) {
      const absl::Status done = guard(queue, [&, queue = queue, &leases = leases]() -> absl::Status {
        for (size_t at = 0; at < leases.size(); at += static_cast<size_t>(limit)) {
          const size_t count = std::min(static_cast<size_t>(limit), leases.size() - at);
          TENURE_ASSIGN_OR_RETURN(store::RecoverResult some,
                                  store.Recover(fence, queue, std::span(leases).subspan(at, count), page.as_of));
          result.recovered += some.recovered;
          result.discarded += some.discarded;
          result.ready.insert(result.ready.end(), some.ready.begin(), some.ready.end());
          for (auto& [of, names] : some.freed) {
            store::GateNames& freed = result.freed[of];
            freed.insert(freed.end(), names.begin(), names.end());
          }
          Soonest(result.next_expiry, some.next_expiry);
        }
        return absl::OkStatus();
      });
      if (absl::IsUnavailable(done)) return done;
    }
    if (!page.over.empty()) TENURE_RETURN_IF_ERROR(store.DropGrants(page.over));
  } while (page.more);
  return result;
}

}  // namespace tenure::background
