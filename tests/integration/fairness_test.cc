// Tenants that take turns, priorities that age, and claims that leave tenants out.
#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/fair_choice.h"
#include "tests/support/tenants_fixture.h"

namespace tenure::engine {
namespace {

using testing::Eventually;
using testing::Replica;

class FairnessTest : public testing::TenantsTest {};

TEST_F(FairnessTest, ATenantWithALargeBacklogDelaysAnotherByATurn) {
  auto a = StartReplica("a");
  Create(*a, Fair());
  Enqueue(*a, "large", 20'000);
  Work(*a, 500, 25);
  Enqueue(*a, "small", 3);
  EXPECT_TRUE(Eventually(10, [&] {
    return Sql("select count(*) from tenure.job where state = 3 and tenant = 'small'") == "3";
  })) << "it is let in although as many of the other are ready as may be";
  // Then it has every other turn, before all that was ready when it came.
  const std::map<std::string, int> next = Work(*a, 10, 1);
  EXPECT_EQ(next.at("small"), 3);
}

TEST_F(FairnessTest, SharesAreWithinFivePercentOverTwoReplicas) {
  auto a = StartReplica("a"), b = StartReplica("b");
  Create(*a, Fair());
  const std::map<std::string, int> weights{{"w1", 1}, {"w2", 2}, {"w4", 4}, {"", 1}};
  for (const auto& [tenant, weight] : weights) {
    if (weight > 1) Weigh(*a, tenant, weight);
    Enqueue(*a, tenant, 4000);
  }
  std::map<std::string, int> done;
  std::mutex mu;
  std::vector<std::thread> workers;
  for (Replica* replica : {a.get(), b.get()}) {
    for (int each : {1, 7, 40}) {
      workers.emplace_back([&, replica, each] {
        const std::map<std::string, int> mine = Work(*replica, 30 * each, each);
        std::lock_guard<std::mutex> lock(mu);
        for (const auto& [tenant, jobs] : mine) done[tenant] += jobs;
      });
    }
  }
  for (std::thread& worker : workers) worker.join();
  int all = 0;
  for (const auto& [tenant, jobs] : done) all += jobs;
  ASSERT_EQ(all, 2 * 30 * 48);
  for (const auto& [tenant, weight] : weights) {
    EXPECT_NEAR(done[tenant], all * weight / 8.0, 0.05 * all * weight / 8.0) << "tenant " << tenant;
  }
}

TEST_F(FairnessTest, AWeightCountsForWhoWaitsAlready) {
  auto a = StartReplica("a");
  Create(*a, Fair());
  Enqueue(*a, "one", 3000);
  Enqueue(*a, "two", 3000);
  EXPECT_NEAR(Work(*a, 400, 10)["one"], 200, 5);
  Weigh(*a, "two", 9);
  Work(*a, 800, 10);  // What had become ready by the old weights, however slow the machine.
  EXPECT_NEAR(Work(*a, 500, 10)["two"], 450, 20);
}

TEST_F(FairnessTest, TheQueuesLimitIsSharedOutByTurns) {
  auto a = StartReplica("a");
  Create(*a, Fair());
  LimitQueue(*a, {4, std::nullopt});
  Enqueue(*a, "large", 100);
  Enqueue(*a, "small", 100);
  auto first = a->Claim("q", 100, absl::Seconds(10));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_LE(first->jobs.size(), 4u);
  Complete(*a, first->jobs);
  EXPECT_NEAR(Work(*a, 100, 4)["small"], 50, 5);
  EXPECT_EQ(Sql("select count(*) <= 4 from tenure.job where state in (3, 4)"), "t");
}

// Who comes to the queue's gate through another one waits there like everybody.
TEST_F(FairnessTest, TheFirstOfAGroupTakesATurnAndASlotOfTheQueue) {
  auto a = StartReplica("a");
  Create(*a, Fair());
  LimitQueue(*a, {2, std::nullopt});
  std::vector<store::NewJob> jobs;
  for (int i = 0; i < 20; ++i) {
    jobs.push_back(Job("large"));
    jobs.back().group = absl::StrCat("g", i);
  }
  for (int i = 0; i < 20; ++i) jobs.push_back(Job("small"));
  ASSERT_TRUE(a->Enqueue("q", std::move(jobs)).ok());
  std::map<std::string, int> done;
  for (int i = 0; i < 10; ++i) {
    auto claimed = a->Claim("q", 10, absl::Seconds(10));
    ASSERT_TRUE(claimed.ok()) << claimed.status();
    EXPECT_EQ(Sql("select count(*) <= 2 from tenure.job where state in (3, 4)"), "t");
    for (const store::ClaimedJob& job : claimed->jobs) ++done[job.job.tenant];
    Complete(*a, claimed->jobs);
  }
  EXPECT_NEAR(done["large"], done["small"], 3);
}

TEST_F(FairnessTest, TurnedOffEverybodyWhoWaitsIsLetGo) {
  auto a = StartReplica("a");
  Create(*a, Fair());
  Enqueue(*a, "t", 3000);
  EXPECT_EQ(Sql("select count(*) from tenure.job where state = 2 and gate = 6") != "0", true);
  Update(*a, store::QueueSettings(), {"fair_tenants"});
  EXPECT_TRUE(Eventually(20, [&] { return Sql("select count(*) from tenure.job where state = 3") == "3000"; }));
  Enqueue(*a, "t", 1);
  EXPECT_EQ(Sql("select count(*) from tenure.job where state = 3 and gate is null"), "1") << "it has no gate any more";
}

TEST_F(FairnessTest, ExplainSaysWhatStandsBeforeATenantsTurn) {
  auto a = StartReplica("a");
  Create(*a, Fair());
  const auto causes = [&](const store::JobId& id) {
    auto why = Replica::Await<store::Explanation>([&](auto done) { a->engine->Explain(id, std::move(done)); });
    EXPECT_TRUE(why.ok()) << why.status();
    return why.ok() ? why->causes : std::vector<store::WaitCause>(1);
  };
  Enqueue(*a, "t", 500);
  auto last = a->Enqueue("q", {Job("t")});
  ASSERT_TRUE(last.ok()) << last.status();
  ASSERT_TRUE(Eventually(10, [&] {
    return Sql("select count(*) from tenure.job where state = 3") == std::to_string(store::FairWindow::kLeast);
  }));
  store::WaitCause cause = causes((*last)[0].id)[0];
  EXPECT_EQ(cause.reason, store::WaitReason::kTenantTurn);
  EXPECT_EQ(cause.key, "t");
  EXPECT_EQ(cause.position, 501 - store::FairWindow::kLeast);
  EXPECT_EQ(cause.ready_jobs, store::FairWindow::kLeast);
  EXPECT_EQ(cause.tenants, 1);

  // What is leased does not stand before it, nor what is ready with a lower priority; the others' jobs do so as turns.
  auto leased = a->Claim("q", 4, absl::Seconds(10));
  ASSERT_TRUE(leased.ok() && leased->jobs.size() == 4) << leased.status();
  LimitQueue(*a, {4, std::nullopt});  // Nothing passes from here on.
  ASSERT_TRUE(Eventually(10, [&] { return store_->Explain((*last)[0].id)->causes.size() == 2; }));
  Enqueue(*a, "u", 3);
  auto urgent = a->Enqueue("q", {Job("v", 5)});
  ASSERT_TRUE(urgent.ok()) << urgent.status();
  std::vector<store::WaitCause> both = causes((*last)[0].id);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].reason, store::WaitReason::kQueueFull);
  EXPECT_EQ(std::to_string(both[1].ready_jobs), Sql("select count(*) from tenure.job where state = 3"));
  EXPECT_EQ(both[1].tenants, 3);
  both = causes((*urgent)[0].id);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1].key, "v");
  EXPECT_EQ(both[1].position, 1);
  EXPECT_EQ(both[1].ready_jobs, 0);
}

// More tenants than one look takes: each gets its turn, before the backlog of one that came first.
TEST_F(FairnessTest, ThousandsOfTenantsAllGetTurns) {
  auto a = StartReplica("a");
  Create(*a, Fair());
  Enqueue(*a, "large", 10'000);
  constexpr int kOthers = 2500;
  std::vector<store::NewJob> jobs;
  for (int i = 0; i < 2 * kOthers; ++i) jobs.push_back(Job(absl::StrCat("t", i % kOthers)));
  for (size_t at = 0; at < jobs.size(); at += 1000) {
    ASSERT_TRUE(a->Enqueue("q", std::vector<store::NewJob>(jobs.begin() + static_cast<std::ptrdiff_t>(at),
                                                           jobs.begin() + static_cast<std::ptrdiff_t>(at + 1000)))
                    .ok());
  }
  // One turn each would be 2,501 jobs; a page of tenants may get a second one before the next page gets its first.
  std::map<std::string, int> done = Work(*a, 2 * kOthers, 200);
  EXPECT_EQ(done.size(), kOthers + 1u);
  EXPECT_LT(done["large"], 500);
  done = Work(*a, 10'000, 500);
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "0");
}

TEST_F(FairnessTest, TheQueuesRateIsSharedOutByTurns) {
  auto a = StartReplica("a");
  Create(*a, Fair());
  LimitQueue(*a, {std::nullopt, store::Rate{absl::Milliseconds(10), 10}});
  Weigh(*a, "small", 3);
  const Clock::TimePoint began = Clock::Real().Now();
  Enqueue(*a, "large", 2000);
  Enqueue(*a, "small", 200);
  Work(*a, 40, 5);  // Some of it had started before the other came.
  EXPECT_NEAR(Work(*a, 80, 5)["small"], 60, 5);
  EXPECT_GE(Clock::Real().Now() - began, std::chrono::milliseconds(1090)) << "110 after the burst, one per 10 ms";
}

TEST_F(FairnessTest, AClaimLeavesTenantsOutAndOthersMayTakeThem) {
  auto a = StartReplica("a");
  Create(*a, {});
  Enqueue(*a, "full", 50);
  Enqueue(*a, "other", 2);
  Enqueue(*a, "", 1);
  ClaimCall call;
  call.worker = "w";
  call.queues = {{"q", 1}};
  call.max_jobs = 10;
  call.exclude_tenants = {"full"};
  const auto claim = [&] {
    return Replica::Await<ClaimAnswer>([&](auto done) { a->engine->Claim(call, testing::In(40), std::move(done)); });
  };
  auto got = claim();
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->jobs.size(), 3u);
  for (const store::ClaimedJob& job : got->jobs) EXPECT_NE(job.job.tenant, "full");
  got = claim();
  ASSERT_TRUE(got.ok() && got->jobs.empty()) << "nothing but what it leaves out";
  // One that waits gets what comes, and does not take the others' turn.
  call.wait = absl::Seconds(30);
  call.exclude_tenants = {"full", ""};
  std::thread producer([&] {
    auto rest = a->Claim("q", 30, absl::Seconds(10));
    ASSERT_TRUE(rest.ok()) << rest.status();
    EXPECT_EQ(rest->jobs.size(), 30u);
    Enqueue(*a, "late", 1);
  });
  got = claim();
  producer.join();
  ASSERT_TRUE(got.ok() && got->jobs.size() == 1) << got.status();
  EXPECT_EQ(got->jobs[0].job.tenant, "late");
  auto rest = a->Claim("q", 100, absl::Seconds(10));
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(rest->jobs.size(), 20u) << "none was lost";
}

// A poll that leaves tenants out is as quiet as any other where there is nothing to leave out.
TEST_F(FairnessTest, APollThatLeavesTenantsOutWaitsQuietly) {
  auto a = StartReplica("a");
  Create(*a, {});
  ClaimCall call;
  call.worker = "w";
  call.queues = {{"q", 1}};
  call.max_jobs = 10;
  call.exclude_tenants = {"nobody"};
  call.wait = absl::Seconds(1);
  const auto got =
      Replica::Await<ClaimAnswer>([&](auto done) { a->engine->Claim(call, testing::In(40), std::move(done)); });
  ASSERT_TRUE(got.ok() && got->jobs.empty()) << got.status();
  EXPECT_LE(a->metrics.batch_items.Add({{"verb", "claim"}}).Collect().histogram.sample_count, 2u) << "it looked on";
}

// At a gate a higher priority goes first, however long others have been due: ageing begins once a job is ready.
TEST_F(FairnessTest, AgeingDoesNotCountAtGates) {
  auto a = StartReplica("a");
  store::QueueSettings settings;
  settings.priority_ageing = absl::Seconds(1);
  Create(*a, settings);
  ASSERT_TRUE(
      store_->SetLimit(store_->EnsureQueue("q", false)->id, store::LimitScope::kKey, "key", {1, std::nullopt}).ok());
  store::NewJob running = Job("running"), old = Job("old"), urgent = Job("urgent", 5);
  for (store::NewJob* job : {&running, &old, &urgent}) job->concurrency_keys = {"key"};
  ASSERT_TRUE(a->Enqueue("q", {running}).ok());
  auto claimed = a->Claim("q", 1, absl::Seconds(10));
  ASSERT_TRUE(claimed.ok() && claimed->jobs.size() == 1) << claimed.status();
  ASSERT_TRUE(a->Enqueue("q", {old}).ok());
  // As if it had been due for an hour: it would have gained 3,600.
  Sql("update tenure.job set due_at = now() - interval '1 hour' where state = 2");
  ASSERT_TRUE(a->Enqueue("q", {urgent}).ok());
  for (const char* next : {"urgent", "old"}) {
    Complete(*a, claimed->jobs);
    claimed = a->Claim("q", 1, absl::Seconds(10));
    ASSERT_TRUE(claimed.ok() && claimed->jobs.size() == 1) << claimed.status();
    EXPECT_EQ(claimed->jobs[0].job.tenant, next);
  }
}

TEST_F(FairnessTest, AgeingBringsAJobBeforeHigherPriorities) {
  auto a = StartReplica("a");
  store::QueueSettings settings;
  settings.priority_ageing = absl::Seconds(1);
  Create(*a, settings);
  Enqueue(*a, "old", 1, -2);
  // As if it had been due for a minute: it has gained 60.
  Sql("update tenure.job set due_at = now() - interval '1 minute'");
  Enqueue(*a, "new", 3000, 10);
  // Its age is looked at every two seconds.
  EXPECT_TRUE(Eventually(20, [&] {
    auto claimed = a->Claim("q", 1, absl::ZeroDuration());
    return claimed.ok() && claimed->jobs.size() == 1 && claimed->jobs[0].job.tenant == "old";
  }));
  EXPECT_NE(Sql("select count(*) from tenure.job where state = 3 and priority = 10"), "0") << "before the others";
}

}  // namespace
}  // namespace tenure::engine
