// QueueDirectory: a name is asked for once at a time, and few names at once.
#include "server/engine/queue_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "tests/support/unimplemented_store.h"

namespace tenure::engine {
namespace {

// Looks of `held` names do not come back before they are let go.
class HeldStore : public testing::UnimplementedStore {
 public:
  absl::StatusOr<store::Queue> EnsureQueue(std::string_view name, bool create) override {
    std::unique_lock<std::mutex> lock(mu_);
    ++asked_[std::string(name)];
    most_ = std::max(most_, ++running_);
    changed_.notify_all();
    const bool exists = exists_;
    changed_.wait(lock, [&] { return !held_; });
    --running_;
    if (!exists && !create) return MakeError(absl::StatusCode::kNotFound, "QUEUE_NOT_FOUND", "there is none");
    store::Queue queue;
    queue.id = static_cast<int32_t>(std::hash<std::string_view>()(name) % 100'000) + 1;
    queue.name = std::string(name);
    return queue;
  }
  void Hold(bool held) {
    std::lock_guard<std::mutex> lock(mu_);
    held_ = held;
    changed_.notify_all();
  }
  void SetExists(bool exists) {
    std::lock_guard<std::mutex> lock(mu_);
    exists_ = exists;
  }
  void AwaitRunning(int count) {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [&] { return running_ >= count; });
  }
  int asked(const std::string& name) {
    std::lock_guard<std::mutex> lock(mu_);
    return asked_[name];
  }
  int most() {
    std::lock_guard<std::mutex> lock(mu_);
    return most_;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::map<std::string, int> asked_;
  bool held_ = false;
  bool exists_ = true;
  int running_ = 0;
  int most_ = 0;
};

class QueueDirectoryTest : public ::testing::Test {
 protected:
  using Resolved = QueueDirectory::Resolved;
  ~QueueDirectoryTest() override {
    store_.Hold(false);
    executor_.Stop();
  }
  std::future<Resolved> Resolve(std::vector<std::string> names, bool create = true) {
    auto promise = std::make_shared<std::promise<Resolved>>();
    auto future = promise->get_future();
    directory_.Resolve(std::move(names), create,
                       [promise](Resolved resolved) { promise->set_value(std::move(resolved)); });
    return future;
  }

  HeldStore store_;
  Executor executor_{4};
  QueueDirectory directory_{store_, executor_, 2};
};

TEST_F(QueueDirectoryTest, ThoseWhoWantANameShareOneLook) {
  store_.Hold(true);
  std::vector<std::future<Resolved>> calls;
  for (int i = 0; i < 50; ++i) calls.push_back(Resolve({"a", "b"}));
  store_.AwaitRunning(2);
  for (int i = 0; i < 50; ++i) calls.push_back(Resolve({"b"}));
  store_.Hold(false);
  for (auto& call : calls) {
    for (const auto& [name, queue] : call.get()) EXPECT_EQ(queue->name, name);
  }
  EXPECT_EQ(store_.asked("a"), 1);
  EXPECT_EQ(store_.asked("b"), 1);
  EXPECT_EQ(Resolve({"a"}).get().at("a")->name, "a");
  EXPECT_EQ(store_.asked("a"), 1) << "it is known";
}

TEST_F(QueueDirectoryTest, OnlySoManyNamesAreAskedForAtOnceAndAllGetTheirTurn) {
  store_.Hold(true);
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("q" + std::to_string(i));
  auto all = Resolve(names);
  store_.AwaitRunning(2);
  // The other threads are free.
  std::promise<void> ran;
  executor_.Post([&] { ran.set_value(); });
  ran.get_future().wait();
  store_.Hold(false);
  EXPECT_EQ(all.get().size(), 100u);
  EXPECT_EQ(store_.most(), 2);
}

TEST_F(QueueDirectoryTest, WhoComesAfterALookBeganIsNotToldThatAQueueDoesNotExist) {
  store_.Hold(true);
  store_.SetExists(false);
  auto early = Resolve({"a"}, /*create=*/false);
  store_.AwaitRunning(1);
  store_.SetExists(true);  // Made by somebody, after that look and before this call.
  auto late = Resolve({"a"}, /*create=*/false);
  store_.Hold(false);
  EXPECT_TRUE(absl::IsNotFound(early.get().at("a").status()));
  EXPECT_EQ(late.get().at("a").status(), absl::OkStatus());
  EXPECT_EQ(store_.asked("a"), 2);
}

// Whoever asks while a look is under way may be answered by it before its own call has returned.
TEST_F(QueueDirectoryTest, EachCallIsAnsweredOnceWhoeverLooks) {
  constexpr int kThreads = 3, kNames = 3'000;
  std::vector<std::atomic<int>> answers(kThreads * kNames);
  std::atomic<int> open = kThreads * kNames;
  std::promise<void> all;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kNames; ++i) {
        directory_.Resolve({absl::StrCat("q", i), "known"}, /*create=*/true, [&, at = thread * kNames + i](Resolved r) {
          EXPECT_EQ(r.size(), 2u);
          ++answers[static_cast<size_t>(at)];
          if (--open == 0) all.set_value();
        });
        directory_.Resolve({"known"}, /*create=*/true, [](const Resolved& r) { EXPECT_EQ(r.size(), 1u); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(all.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  for (const std::atomic<int>& answered : answers) EXPECT_EQ(answered, 1);
}

}  // namespace
}  // namespace tenure::engine
