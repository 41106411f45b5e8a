// What the tests of the store's methods share: a queue, a replica, and short calls on them. Layer: tests. Not
// thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/support/store_fixture.h"

namespace tenure::store {

class StoreLifecycleTest : public tenure::testing::StoreTest {
 protected:
  StoreLifecycleTest() {
    queue_ = store_->EnsureQueue("q", true).value().id;
    replica_ = store_->RegisterReplica("replica-1", "test").value();
  }

  NewJob Spec(std::string payload = "{}") {
    NewJob job;
    job.kind = "k";
    job.payload = {std::move(payload), "application/json"};
    return job;
  }

  std::vector<JobId> Enqueue(int n) { return EnqueueAll(std::vector<NewJob>(static_cast<size_t>(n), Spec())); }

  std::vector<JobId> EnqueueAll(const std::vector<NewJob>& jobs) {
    auto result = store_->Enqueue(queue_, jobs);
    EXPECT_TRUE(result.ok()) << result.status();
    std::vector<JobId> ids;
    for (const EnqueueOutcome& outcome : result->jobs) ids.push_back(outcome.id);
    return ids;
  }

  ClaimBatch Batch(int slots, absl::Duration lease = absl::Seconds(30), Key after = kLowestKey) {
    ClaimBatch batch;
    batch.queue = queue_;
    batch.replica = replica_;
    batch.ranges = {{0, after, kHighestKey}};
    batch.workers = {"w"};
    batch.slots.assign(static_cast<size_t>(slots), ClaimSlot{0, -1, lease});
    return batch;
  }

  std::vector<ClaimedJob> Claim(int slots, absl::Duration lease = absl::Seconds(30)) {
    auto result = store_->Claim(Batch(slots, lease));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->jobs : std::vector<ClaimedJob>();
  }

  SettleOutcome Complete(const LeaseToken& token, std::optional<Payload> result = std::nullopt) {
    const std::vector<CompleteItem> items{{token, std::move(result), {}}};
    auto settled = store_->Complete(queue_, items);
    EXPECT_TRUE(settled.ok()) << settled.status();
    return settled->items[0];
  }

  TokenState Resolve(Verb verb, const LeaseToken& token) {
    const std::vector<LeaseToken> tokens{token};
    auto resolved = store_->ResolveTokens(queue_, verb, tokens);
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    return (*resolved)[0].state;
  }

  int32_t queue_ = 0;
  int32_t replica_ = 0;
};

}  // namespace tenure::store
