// Two queues, "from" and "to", and the leader that moves jobs between them. Layer: tests. One thread at a time, but for
// Step.
#pragma once

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/store_fixture.h"

namespace tenure::testing {

class MoveFixture : public StoreTest {
 protected:
  MoveFixture()
      : from_(store_->EnsureQueue("from", true)->id),
        to_(store_->EnsureQueue("to", true)->id),
        replica_(*store_->RegisterReplica("r", "test")),
        fence_(**store_->AcquireLeader("lifecycle", replica_, absl::Hours(1))) {}

  std::vector<store::JobId> Enqueue(int count, absl::Duration delay = absl::ZeroDuration(),
                                    const std::string& kind = "k", size_t payload = 2) {
    std::vector<store::NewJob> jobs(static_cast<size_t>(count));
    for (store::NewJob& job : jobs) {
      job.kind = kind;
      job.delay = delay;
      job.payload = {std::string(payload, 'x'), "text/plain"};
      job.headers = {{"h", "v"}};
      job.priority = 3;
    }
    const auto enqueued = store_->Enqueue(from_, jobs);
    EXPECT_EQ(enqueued.status(), absl::OkStatus());
    std::vector<store::JobId> ids;
    for (const store::EnqueueOutcome& outcome : enqueued->jobs) ids.push_back(outcome.id);
    return ids;
  }
  // Claims `count` jobs of `queue` and fails them for good.
  void Kill(int32_t queue, int count) {
    store::ClaimBatch batch;
    batch.queue = queue;
    batch.replica = replica_;
    batch.ranges = {{3, store::kLowestKey, store::kHighestKey}};
    batch.workers = {"w"};
    batch.slots.assign(static_cast<size_t>(count), {.worker = 0, .request = -1, .lease = absl::Minutes(1)});
    const auto claimed = store_->Claim(batch);
    ASSERT_TRUE(claimed.ok()) << claimed.status();
    ASSERT_EQ(claimed->jobs.size(), static_cast<size_t>(count));
    std::vector<store::FailItem> items;
    for (const store::ClaimedJob& job : claimed->jobs)
      items.push_back({job.token, {.message = "no"}, true, std::nullopt});
    ASSERT_EQ(store_->Fail(queue, items).status(), absl::OkStatus());
  }
  store::Move Make(store::MoveSpec spec, const std::string& request_id = "") {
    spec.from = spec.from.empty() ? "from" : spec.from;
    spec.to = spec.to.empty() ? "to" : spec.to;
    const int32_t from = store_->EnsureQueue(spec.from, false)->id, to = store_->EnsureQueue(spec.to, false)->id;
    const auto move = store_->CreateMove(spec, from, to, request_id);
    EXPECT_EQ(move.status(), absl::OkStatus());
    return move.value_or(store::Move());
  }
  store::MoveStep Step(int64_t move, int limit = 1000) {
    const auto step = store_->StepMove(fence_, move, limit);
    EXPECT_EQ(step.status(), absl::OkStatus());
    return step.value_or(store::MoveStep());
  }
  // Steps until it ends; how many were moved.
  int64_t Finish(int64_t move, int limit = 1000) {
    int64_t moved = 0;
    for (int steps = 0; steps < 1000; ++steps) {
      const store::MoveStep step = Step(move, limit);
      moved += step.moved;
      if (step.ended) return moved;
    }
    ADD_FAILURE() << "move " << move << " does not end";
    return moved;
  }
  int Count(const std::string& what) { return std::stoi(Sql("select count(*) from " + what)); }

  const int32_t from_;
  const int32_t to_;
  const int32_t replica_;
  const store::Fence fence_;
};

}  // namespace tenure::testing
