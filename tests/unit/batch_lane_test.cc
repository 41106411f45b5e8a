// What concurrent calls ask of one queue goes out in few batches, and none of them suffers from another. Layer: tests.
#include "server/engine/batch_lane.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tenure::engine {
namespace {

using ::testing::ElementsAre;

// Items are numbers; an item's outcome is ten times it.
class BatchLaneTest : public ::testing::Test {
 protected:
  using Lane = BatchLane<int, int>;
  struct Sent {
    int32_t queue;
    std::vector<int> items;
  };

  BatchLaneTest() { Make({}); }
  ~BatchLaneTest() override {
    Open();
    executor_.Stop();
  }

  void Make(LaneLimits limits) {
    most_in_flight_ = limits.in_flight;
    lane_ = std::make_unique<Lane>("verb", executor_, metrics_, limits,
                                   [this](int32_t queue, std::span<const int> items) { return Flush(queue, items); });
  }

  Lane::Outcomes Flush(int32_t queue, std::span<const int> items) {
    std::unique_lock<std::mutex> lock(mu_);
    sent_.push_back({queue, {items.begin(), items.end()}});
    changed_.notify_all();
    const bool held = queue == 1;
    in_flight_ += held;
    EXPECT_LE(in_flight_, most_in_flight_);
    changed_.wait(lock, [&] { return open_ || !held; });
    in_flight_ -= held;
    if (answer_) {
      if (absl::Status status = answer_(items); !status.ok()) return status;
    }
    std::vector<int> outcomes;
    for (int item : items) outcomes.push_back(item * 10);
    return outcomes;
  }

  std::future<Lane::Outcomes> Add(int32_t queue, std::vector<int> items, int64_t bytes = 1, bool follows = false) {
    auto promise = std::make_shared<std::promise<Lane::Outcomes>>();
    auto future = promise->get_future();
    lane_->Add(
        queue, std::move(items), bytes, [promise](Lane::Outcomes outcomes) { promise->set_value(std::move(outcomes)); },
        follows);
    return future;
  }

  // Batches of queue 1 stand still in the database between Close and Open.
  void Close() {
    std::lock_guard<std::mutex> lock(mu_);
    open_ = false;
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mu_);
    open_ = true;
    changed_.notify_all();
  }
  void AwaitSent(size_t batches) {
    std::unique_lock<std::mutex> lock(mu_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(30), [&] { return sent_.size() >= batches; }));
  }
  std::vector<std::vector<int>> SentItems() {
    std::lock_guard<std::mutex> lock(mu_);
    std::vector<std::vector<int>> items;
    for (const Sent& sent : sent_) items.push_back(sent.items);
    return items;
  }

  std::mutex mu_;
  std::condition_variable changed_;
  bool open_ = true;
  int in_flight_ = 0;  // Of queue 1.
  int most_in_flight_ = 1;
  std::vector<Sent> sent_;
  std::function<absl::Status(std::span<const int>)> answer_;
  Metrics metrics_;
  Executor executor_{3};
  std::unique_ptr<Lane> lane_;
};

TEST_F(BatchLaneTest, AnIdleLaneSendsAtOnce) {
  EXPECT_THAT(*Add(1, {1, 2}).get(), ElementsAre(10, 20));
  EXPECT_THAT(*Add(1, {3}).get(), ElementsAre(30));
  EXPECT_THAT(SentItems(), ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
}

TEST_F(BatchLaneTest, WhileOneBatchIsUnderWayTheNextGathersAndEachGetsItsOwn) {
  Close();
  auto first = Add(1, {1});
  AwaitSent(1);
  auto second = Add(1, {2, 3});
  auto third = Add(1, {4});
  auto fourth = Add(1, {5, 6});
  Open();
  EXPECT_THAT(*first.get(), ElementsAre(10));
  EXPECT_THAT(*second.get(), ElementsAre(20, 30));
  EXPECT_THAT(*third.get(), ElementsAre(40));
  EXPECT_THAT(*fourth.get(), ElementsAre(50, 60));
  EXPECT_THAT(SentItems(), ElementsAre(ElementsAre(1), ElementsAre(2, 3, 4, 5, 6)));
}

TEST_F(BatchLaneTest, BatchesAreBoundedByItemsAndByBytes) {
  Make({.batch_items = 4, .batch_bytes = 100});
  Close();
  auto first = Add(1, {0});
  AwaitSent(1);
  std::vector<std::future<Lane::Outcomes>> rest;
  rest.push_back(Add(1, {1, 2}));
  rest.push_back(Add(1, {3, 4}));
  rest.push_back(Add(1, {5}, 90));
  rest.push_back(Add(1, {6}, 20));
  rest.push_back(Add(1, {7}, 1000));  // Alone, as it is.
  Open();
  for (auto& one : rest) EXPECT_TRUE(one.get().ok());
  EXPECT_THAT(SentItems(),
              ElementsAre(ElementsAre(0), ElementsAre(1, 2, 3, 4), ElementsAre(5), ElementsAre(6), ElementsAre(7)));
}

TEST_F(BatchLaneTest, ASecondBatchGoesBesideTheFirstOnceEnoughWaits) {
  Make({.batch_items = 3, .in_flight = 2, .beside_items = 3});
  Close();
  auto first = Add(1, {1});
  AwaitSent(1);
  std::vector<std::future<Lane::Outcomes>> rest;
  rest.push_back(Add(1, {2, 3}));
  EXPECT_EQ(SentItems().size(), 1u) << "it gathers";
  rest.push_back(Add(1, {4}));
  AwaitSent(2);
  for (int item = 5; item <= 9; ++item) rest.push_back(Add(1, {item}));
  EXPECT_EQ(SentItems().size(), 2u) << "and never a third";
  Open();
  for (auto& one : rest) EXPECT_TRUE(one.get().ok());
  EXPECT_TRUE(first.get().ok());
  EXPECT_THAT(SentItems()[1], ElementsAre(2, 3, 4));
  EXPECT_THAT(SentItems()[2], ElementsAre(5, 6, 7));
}

TEST_F(BatchLaneTest, APartOfACallIsNotWrittenBesideThePartBeforeIt) {
  Make({.batch_items = 2, .batch_bytes = 10, .in_flight = 2, .beside_items = 1});
  Close();
  auto first = Add(1, {1, 2}, 9);
  auto second = Add(1, {3, 4}, 9, /*follows=*/true);
  auto third = Add(1, {5, 6}, 9, /*follows=*/true);
  auto other = Add(1, {7, 8}, 9);
  AwaitSent(1);
  EXPECT_EQ(SentItems().size(), 1u);
  Open();
  for (auto* part : {&first, &second, &third, &other}) EXPECT_TRUE(part->get().ok());
  EXPECT_THAT(SentItems(), ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4), ElementsAre(5, 6), ElementsAre(7, 8)));
}

TEST_F(BatchLaneTest, ASlowQueueHoldsNoOther) {
  Close();
  auto slow = Add(1, {1});
  AwaitSent(1);
  for (int32_t queue = 2; queue < 50; ++queue) EXPECT_THAT(*Add(queue, {queue}).get(), ElementsAre(queue * 10));
  Open();
  EXPECT_TRUE(slow.get().ok());
}

TEST_F(BatchLaneTest, MoreThanItTakesIsShedAndTheRestIsServed) {
  Make({.waiting_items = 3});
  Close();
  auto first = Add(1, {1});
  AwaitSent(1);
  auto waiting = Add(1, {2, 3});
  auto shed = Add(1, {4, 5});
  const Lane::Outcomes refused = shed.get();
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_EQ(DetailsOf(refused.status()).reason, "OVERLOADED");
  Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_THAT(*waiting.get(), ElementsAre(20, 30));
  EXPECT_THAT(*Add(1, {6, 7, 8}).get(), ElementsAre(60, 70, 80));
}

TEST_F(BatchLaneTest, ABatchThatTimesOutIsRunInHalvesAndTheLaneGrowsBack) {
  Make({.batch_items = 8});
  answer_ = [](std::span<const int> items) {
    return items.size() > 2 ? absl::DeadlineExceededError("too much") : absl::OkStatus();
  };
  Close();
  auto first = Add(1, {0});
  AwaitSent(1);
  std::vector<std::future<Lane::Outcomes>> rest;
  for (int i = 1; i <= 8; ++i) rest.push_back(Add(1, {i}));
  Open();
  for (int i = 1; i <= 8; ++i) EXPECT_THAT(*rest[static_cast<size_t>(i) - 1].get(), ElementsAre(i * 10));
  std::vector<size_t> sizes;
  for (const auto& items : SentItems()) sizes.push_back(items.size());
  // 8 and 4 are too many; 2 pass; 4 are tried again, and so on.
  EXPECT_THAT(std::vector<size_t>(sizes.begin(), sizes.begin() + 4), ElementsAre(1, 8, 4, 2));
  {
    std::lock_guard<std::mutex> lock(mu_);
    answer_ = nullptr;
    sent_.clear();
  }
  // Whatever it had come down to, it takes eight again after a few batches.
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Add(1, {i}).get().ok());
  Close();
  auto again = Add(1, {0});
  AwaitSent(5);
  rest.clear();
  for (int i = 1; i <= 8; ++i) rest.push_back(Add(1, {i}));
  Open();
  for (auto& one : rest) EXPECT_TRUE(one.get().ok());
  EXPECT_EQ(SentItems().back().size(), 8u);
}

TEST_F(BatchLaneTest, OneCallThatTheDatabaseRefusesFailsAlone) {
  answer_ = [](std::span<const int> items) {
    const bool bad = std::find(items.begin(), items.end(), 13) != items.end();
    return bad ? absl::InternalError("thirteen") : absl::OkStatus();
  };
  Close();
  auto first = Add(1, {0});
  AwaitSent(1);
  std::vector<std::future<Lane::Outcomes>> rest;
  for (int i = 1; i <= 40; ++i) rest.push_back(Add(1, {i}));
  Open();
  for (int i = 1; i <= 40; ++i) {
    const Lane::Outcomes outcomes = rest[static_cast<size_t>(i) - 1].get();
    EXPECT_EQ(outcomes.ok(), i != 13) << i << ": " << outcomes.status();
  }
}

// The commit may have happened, or the database is away: the callers decide.
TEST_F(BatchLaneTest, AnUnavailableDatabaseIsAnsweredToAllAndNothingIsRepeated) {
  answer_ = [](std::span<const int> items) {
    return items.size() > 1 ? absl::UnavailableError("in doubt") : absl::OkStatus();
  };
  Close();
  auto first = Add(1, {0});
  AwaitSent(1);
  auto second = Add(1, {1});
  auto third = Add(1, {2});
  Open();
  EXPECT_TRUE(absl::IsUnavailable(second.get().status()));
  EXPECT_TRUE(absl::IsUnavailable(third.get().status()));
  EXPECT_EQ(SentItems().size(), 2u);
}

TEST_F(BatchLaneTest, ManyThreadsGetEachItsOwn) {
  Make({.batch_items = 5, .in_flight = 2, .beside_items = 3});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const int item = t * 1000 + i;
        const Lane::Outcomes outcomes = Add(1 + i % 3, {item, item + 1}).get();
        if (!outcomes.ok() || *outcomes != std::vector<int>{item * 10, item * 10 + 10}) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  size_t items = 0;
  for (const auto& batch : SentItems()) items += batch.size();
  EXPECT_EQ(items, 8000u);
}

TEST_F(BatchLaneTest, WhatWaitsAfterTheEndIsLetGo) {
  Executor stopped(1);
  stopped.Stop();
  Lane lane("verb", stopped, metrics_, {}, [](int32_t, std::span<const int>) { return std::vector<int>(); });
  auto owned = std::make_shared<int>(1);
  lane.Add(1, {1}, 1, [owned](const Lane::Outcomes&) {});
  EXPECT_EQ(owned.use_count(), 2);
  lane.Abandon();
  EXPECT_EQ(owned.use_count(), 1);
}

}  // namespace
}  // namespace tenure::engine
