// Unique keys under everything at once: three replicas' stores, producers of all policies, applications, workers that
// complete, fail, release, snooze and cancel. A unique index that only the test has would refuse a second live job of
// a key that is never given to another while its job lives; and no acknowledged update may be lost.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/fair_choice.h"
#include "tests/support/store_fixture.h"

namespace tenure::store {
namespace {

using Random = std::mt19937;

class UniqueRandomTest : public tenure::testing::StoreTest {
 protected:
  static constexpr int kKeys = 4;
  static constexpr int kUpdates = 120;

  static int Draw(Random& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

  postgres::PostgresStore& Any(Random& random) { return *stores_[static_cast<size_t>(Draw(random, 0, 2))]; }

  static NewJob Job(const std::string& key, OnConflict policy, const std::string& data) {
    NewJob job;
    job.kind = "k";
    job.payload = {data, "text/plain"};
    const bool keeps = policy == OnConflict::kReturn || policy == OnConflict::kReject;
    job.unique = Unique{key, false, {JobState::kScheduled, JobState::kBlocked, JobState::kReady}, {}, policy};
    if (keeps) job.unique->states.insert(job.unique->states.end(), {JobState::kLeased, JobState::kSuspended});
    return job;
  }

  // Keys of which never two jobs may live.
  void Keep(Random random) {
    for (int round = 0; round < 80; ++round) {
      std::vector<NewJob> jobs;
      for (int i = Draw(random, 1, 6); i > 0; --i) {
        jobs.push_back(Job(absl::StrCat("one", Draw(random, 1, kKeys)),
                           Draw(random, 0, 2) == 0 ? OnConflict::kReject : OnConflict::kReturn, "-"));
        if (Draw(random, 0, 3) == 0) jobs.back().delay = absl::Milliseconds(Draw(random, 1, 30));
        if (Draw(random, 0, 3) == 0) jobs.back().idempotency_key = absl::StrCat("i", Draw(random, 1, 10'000));
        if (Draw(random, 0, 3) == 0) jobs.back().group = "g";
      }
      auto result = Any(random).EnqueueUnique(queue_, jobs);
      ASSERT_TRUE(result.ok()) << result.status();
      for (const EnqueueOutcome& outcome : result->jobs) {
        const std::string reason = DetailsOf(outcome.status).reason;
        ASSERT_TRUE(outcome.status.ok() || reason == "UNIQUE_CONFLICT" || reason == "KEY_BUSY" ||
                    reason == "IDEMPOTENCY_CONFLICT")
            << outcome.status;
        accepted_ += outcome.status.ok() && !outcome.existing && !outcome.duplicate;
      }
      if (round % 4 == 0) {
        Sql(absl::StrCat("select tenure.enqueue('q', 'k', '-', unique_key => 'one", Draw(random, 1, kKeys), "')"));
      }
    }
  }

  // One producer a key, so that its updates have an order.
  void Update(int key, Random random) {
    const std::string name = absl::StrCat("update", key);
    for (int n = 1; n <= kUpdates; ++n) {
      NewJob job = Job(name, Draw(random, 0, 1) == 0 ? OnConflict::kReplace : OnConflict::kReplaceAndReschedule,
                       absl::StrCat(name, "/", n));
      if (n % 7 == 0) job.payload.data.append(2000, ' ');
      if (Draw(random, 0, 2) == 0) job.delay = absl::Milliseconds(Draw(random, 1, 20));
      auto result = Any(random).EnqueueUnique(queue_, std::vector<NewJob>{job});
      ASSERT_TRUE(result.ok()) << result.status();
      if (!result->jobs[0].status.ok()) {
        ASSERT_EQ(DetailsOf(result->jobs[0].status).reason, "KEY_BUSY");
        continue;
      }
      accepted_ += !result->jobs[0].existing;
      changed_ += result->jobs[0].existing;
      std::lock_guard<std::mutex> lock(mu_);
      acknowledged_[name] = n;
    }
  }

  void Work(Random random) {
    while (!done_) {
      ClaimBatch batch;
      batch.queue = queue_;
      batch.replica = granter_;
      batch.ranges = {{0, kLowestKey, kHighestKey}};
      batch.workers = {"w"};
      batch.slots.assign(static_cast<size_t>(Draw(random, 1, 4)), ClaimSlot{0, -1, absl::Minutes(5)});
      auto claimed = Any(random).Claim(batch);
      ASSERT_TRUE(claimed.ok()) << claimed.status();
      for (const ClaimedJob& job : claimed->jobs) Settle(random, job);
      // What a claim passed over, and what is to be admitted, is looked at again.
      const GateNames names{"gg"};
      ASSERT_TRUE(Any(random).Admit(queue_, names, 100, FairWindow::kLeast).ok());
      ASSERT_TRUE(Any(random).Promote(fence_, absl::InfinitePast(), 100).ok());
    }
  }

  void Settle(Random& random, const ClaimedJob& job) {
    PostgresStore& store = Any(random);
    const int way = job.job.attempt > 3 ? 0 : Draw(random, 0, 9);
    const bool update = job.job.payload.data.starts_with("update");
    if (way == 9 && !update) {
      const std::vector<JobId> ids{job.job.id};
      while (store.Cancel(queue_, ids, "")->items[0].state == CancelOutcome::State::kLocked) {
      }
      return;
    }
    std::vector<FollowUp> next;
    if (Draw(random, 0, 3) == 0) {
      next.push_back({queue_, Job(absl::StrCat("one", Draw(random, 1, kKeys)), OnConflict::kReturn, "-")});
    }
    const std::vector<FailItem> failed{
        {job.token, {"boom"}, false, absl::Milliseconds(Draw(random, 0, 10)), std::nullopt, ""}};
    const std::vector<GiveBackItem> released{{job.token, absl::ZeroDuration()}};
    const std::vector<CompleteItem> completed{{job.token, std::nullopt, std::move(next)}};
    for (;;) {
      auto settled = way == 7   ? store.Fail(queue_, failed)
                     : way == 8 ? store.GiveBack(queue_, Verb::kRelease, released)
                                : store.Complete(queue_, completed);
      ASSERT_TRUE(settled.ok()) << settled.status();
      // Somebody holds the job's row, or the key of its follow-up, for a moment: the engine's slow lane does the same.
      if (settled->items[0].state == TokenState::kUnresolved) continue;
      ASSERT_EQ(settled->items[0].state, TokenState::kWon);
      break;
    }
    if (way == 7 || way == 8 || !update) return;
    std::lock_guard<std::mutex> lock(mu_);
    completed_.insert(job.job.payload.data.substr(0, job.job.payload.data.find(' ')));
  }

  using PostgresStore = postgres::PostgresStore;
  int32_t queue_ = 0, granter_ = 0;
  Fence fence_;
  std::vector<std::unique_ptr<PostgresStore>> stores_;
  std::atomic<bool> done_{false};
  std::atomic<int> accepted_{0}, changed_{0};
  std::mutex mu_;
  std::map<std::string, int> acknowledged_;
  std::set<std::string> completed_;
};

TEST_F(UniqueRandomTest, OneJobOfAKeyAndNoUpdateIsLost) {
  const auto seed = static_cast<unsigned>(absl::ToUnixMicros(absl::Now()));
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  queue_ = store_->EnsureQueue("q", true)->id;
  granter_ = *store_->RegisterReplica("granter", "test");
  fence_ = **store_->AcquireLeader("promoter", granter_, absl::Hours(1));
  for (int i = 0; i < 3; ++i) stores_.push_back(OpenStore());
  Sql("create unique index only_one on tenure.job (queue_id, unique_name) where unique_name like 'q:one%'");
  std::vector<std::thread> workers, producers;
  for (unsigned i = 0; i < 3; ++i) {
    workers.emplace_back([this, i, seed] { Work(Random(seed + i)); });
    producers.emplace_back([this, i, seed] { Keep(Random(seed + 10 + i)); });
  }
  for (int key = 1; key <= kKeys; ++key) {
    producers.emplace_back([this, key, seed] { Update(key, Random(seed + 20 + static_cast<unsigned>(key))); });
  }
  for (std::thread& producer : producers) producer.join();
  for (int rounds = 0; rounds < 3000 && Sql("select count(*) from tenure.job") != "0"; ++rounds) {
  }
  done_ = true;
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "0");
  for (const auto& [name, last] : acknowledged_) {
    EXPECT_TRUE(completed_.contains(absl::StrCat(name, "/", last))) << "lost: " << name << "/" << last;
  }
  EXPECT_GT(changed_, 0);
  EXPECT_EQ(Sql("select concat_ws(' ', sum(scheduled), sum(blocked), sum(ready), sum(leased)) from tenure.event"),
            "0 0 0 0");
  EXPECT_EQ(Sql("select sum(enqueued) - (select count(*) from tenure.history) from tenure.event"), "0");
  int made = 0;
  ASSERT_TRUE(absl::SimpleAtoi(Sql("select count(*) from tenure.history"), &made));
  EXPECT_GE(made, accepted_);
  EXPECT_GT(accepted_, kKeys);
}

}  // namespace
}  // namespace tenure::store
