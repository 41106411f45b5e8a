// HeldLeases: see the header. Layer: tests (benchmark).
#include "held_leases.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tenure_site.h"

namespace tenure::bench {

absl::StatusOr<std::unique_ptr<HeldLeases>> HeldLeases::Take(const client::Client& client, const std::string& queue,
                                                             int64_t count, double lease_seconds, Progress& progress) {
  constexpr int kJobsPerClaim = 1000;
  const auto lease = std::chrono::duration_cast<client::Duration>(std::chrono::duration<double>(lease_seconds));
  std::unique_ptr<HeldLeases> held(new HeldLeases(client));
  client::LeaseKeeperOptions options;
  options.lease = lease;
  options.on_change = [counter = &held->lost_](const auto&, const absl::Status&) { ++*counter; };
  held->keeper_ = std::make_unique<client::LeaseKeeper>(client, options);
  if (absl::Status filled = EnqueueMany(held->client_, count, 1, 1000, {}, {queue}); !filled.ok()) return filled;
  client::ClaimOptions claim;
  claim.worker_id = client::NewWorkerId();
  claim.queues = {{queue}};
  claim.max_jobs = kJobsPerClaim;
  claim.lease = lease;
  claim.wait = std::chrono::seconds(20);
  while (static_cast<int64_t>(held->leases_.size()) < count) {
    const auto claimed = held->client_.Claim(claim);
    if (!claimed.ok()) return claimed.status();
    if (claimed->jobs.empty()) {
      return absl::DataLossError(absl::StrFormat("only %d of %d jobs can be claimed", held->leases_.size(), count));
    }
    for (const client::ClaimedJob& job : claimed->jobs) held->leases_.push_back(held->keeper_->Hold(job));
    progress.Show("leases", static_cast<int64_t>(held->leases_.size()), count);
  }
  return held;
}

absl::Status HeldLeases::Complete() {
  if (lost_ > 0) return absl::DataLossError(absl::StrCat(lost_.load(), " leases were lost while they were extended"));
  std::vector<client::CompleteItem> items;
  for (const auto& lease : leases_) items.push_back({.lease_token = lease->token(), .result = {}, .follow_ups = {}});
  for (const auto& settled : client_.CompleteBatch(items)) {
    if (!settled.ok())
      return absl::DataLossError("a held lease could not be completed: " + settled.status().ToString());
  }
  for (const auto& lease : leases_) keeper_->Forget(lease);
  return absl::OkStatus();
}

}  // namespace tenure::bench
