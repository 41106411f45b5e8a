#include "tests/support/vanishing_replicas.h"

#include <cstdlib>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/background/recovery.h"
#include "server/base/status.h"

namespace tenure::testing {

uint32_t VanishingReplicasTest::Seed() {
  uint32_t seed = std::random_device()();
  if (const char* given = std::getenv("TENURE_TEST_SEED"); given != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(given, &seed)) << given;
  }
  RecordProperty("seed", absl::StrCat(seed));
  return seed;
}

void VanishingReplicasTest::StartReplicas() {
  for (const char* name : {"a", "b", "c"}) replicas_.push_back(StartReplica(name));
}

std::shared_ptr<Replica> VanishingReplicasTest::Any(Random& random) {
  std::lock_guard<std::mutex> lock(mu_);
  return replicas_[static_cast<size_t>(Draw(random, 0, static_cast<int>(replicas_.size()) - 1))];
}

bool VanishingReplicasTest::Run(uint32_t seed, const Actor& work, const Actor& produce, int crashes) {
  std::vector<std::thread> threads, producers;
  threads.emplace_back([&] { Background(); });
  for (uint32_t i = 0; i < 4; ++i) threads.emplace_back([&, i] { work(Random(seed + 100 + i)); });
  for (uint32_t i = 0; i < 2; ++i) producers.emplace_back([&, i] { produce(Random(seed + 200 + i)); });
  for (int i = 0; i < crashes; ++i) Crash(i);
  for (std::thread& producer : producers) producer.join();
  const bool ended = Eventually(90, [&] { return Sql("select count(*) from tenure.job") == "0"; });
  done_ = true;
  for (std::thread& thread : threads) thread.join();
  return ended;
}

// Nobody calls it any more, and what it had under way or in mind goes with it when its connections do.
void VanishingReplicasTest::Crash(int nth) {
  Sql("select pg_sleep(1)");
  auto fresh = StartReplica(absl::StrCat("fresh", nth));
  std::lock_guard<std::mutex> lock(mu_);
  std::shared_ptr<Replica>& gone = replicas_[static_cast<size_t>(nth) % replicas_.size()];
  Sql(absl::StrCat(
      "select count(pg_terminate_backend(pid)) from unnest((select backend_pids from tenure.replica where id = ",
      gone->engine->replica_id(), ")) as pid"));
  vanished_.push_back(std::move(gone));
  gone = std::move(fresh);
}

void VanishingReplicasTest::Background() {
  const int32_t id = *store_->RegisterReplica("background", "test");
  const store::Fence promoter = **store_->AcquireLeader("promoter", id, absl::Hours(1));
  const store::ShardFence shards = HoldShards(*store_, "reaper", id, absl::Hours(1));
  Random random(1);
  store::BlockedPage::Cursor at;
  store::DependencyPage::Cursor dependency;
  for (int round = 0; !done_; ++round) {
    store_->Heartbeat(id, false, absl::Hours(1)).IgnoreError();
    auto promoted = store_->Promote(promoter, absl::InfinitePast(), 1000);
    ASSERT_TRUE(promoted.ok()) << promoted.status();
    Any(random)->engine->NoteGates(promoted->blocked);
    auto recovered = background::RecoverVanished(*store_, shards, 1000);
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    Any(random)->engine->NoteGates(recovered->freed);
    auto page = store_->BlockedNames(at, 100);
    ASSERT_TRUE(page.ok()) << page.status();
    Any(random)->engine->NoteGates(page->names);
    at = page->next.value_or(store::BlockedPage::Cursor());
    auto recalls = store_->Recalls(10);
    ASSERT_TRUE(recalls.ok()) << recalls.status();
    for (const int32_t queue : *recalls) {
      auto step = Any(random)->store->Recall(queue, 50);
      if (step.ok()) Any(random)->engine->NoteGates({{queue, {"q"}}});  // Else its replica has vanished.
    }
    // Seldom, as it is: what looks at once has to do the most of it.
    if (round % 25 == 0) {
      auto waiting = store_->SweepDependencies(dependency, 1000);
      ASSERT_TRUE(waiting.ok()) << waiting.status();
      Any(random)->engine->NoteGates(waiting->ended);
      dependency = waiting->next.value_or(store::DependencyPage::Cursor());
    }
    Sql("select pg_sleep(0.02)");
  }
}

}  // namespace tenure::testing
