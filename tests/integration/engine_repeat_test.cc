// Claims with request ids, repeated: the same leases, from any replica, and nothing leased twice. Layer: tests.
#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "tests/support/single_engine_fixture.h"

namespace tenure::engine {
namespace {

class EngineRepeatTest : public tenure::testing::EngineFixture {};

TEST_F(EngineRepeatTest, ARepeatedClaimGetsTheSameLeasesFromAnotherReplica) {
  auto a = StartReplica("a");
  auto b = StartReplica("b");
  Enqueue(*a->engine, 2);
  ClaimCall call = Call(2, absl::Seconds(5));
  call.request_id = "r";
  auto first = Claim(*a->engine, call);
  ASSERT_EQ(first->jobs.size(), 2u);
  auto second = Claim(*b->engine, call);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(second->replayed);
  ASSERT_EQ(second->jobs.size(), 2u);
  std::set<std::string> tokens{first->jobs[0].token.ToString(), first->jobs[1].token.ToString()};
  EXPECT_TRUE(tokens.contains(second->jobs[0].token.ToString()));
  // And from the same one, where the cursor stands behind them.
  auto third = Claim(*a->engine, call);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_TRUE(third->replayed);
  EXPECT_EQ(third->jobs.size(), 2u);
}

// However a named claim and its repeats meet, and however many queues it names: all get the same leases.
TEST_F(EngineRepeatTest, ARepeatedClaimOfNamedJobsGetsTheSameLeases) {
  auto a = StartReplica("a");
  auto b = StartReplica("b");
  for (int round = 0; round < 10; ++round) {
    NamedClaimCall call;
    call.worker = "w";
    call.lease = absl::Seconds(30);
    call.request_id = absl::StrCat("named-", round);
    for (const char* queue : {"na", "nb"}) call.ids.push_back(Enqueue(*a->engine, 1, queue)[0].id);
    std::vector<std::future<absl::StatusOr<std::vector<store::NamedClaimOutcome>>>> calls;
    for (int i = 0; i < 4; ++i) {
      Engine& engine = i % 2 == 0 ? *a->engine : *b->engine;
      calls.push_back(std::async(std::launch::async, [&engine, call] {
        return Await<std::vector<store::NamedClaimOutcome>>(
            [&](auto done) { engine.ClaimNamed(call, In(20), std::move(done)); });
      }));
    }
    std::set<std::string> tokens;
    for (auto& answer : calls) {
      const auto outcomes = answer.get();
      ASSERT_TRUE(outcomes.ok()) << outcomes.status();
      for (const store::NamedClaimOutcome& outcome : *outcomes) {
        ASSERT_TRUE(outcome.job) << outcome.refusal;
        tokens.insert(outcome.job->token.ToString());
      }
    }
    EXPECT_EQ(tokens.size(), 2u);
  }
}

// A worker that stops ends its poll and repeats it without waiting, to collect what the poll may have brought. Once
// that is answered, nothing may be leased under the id any more: nobody would hear of it.
TEST_F(EngineRepeatTest, ARepeatEndsTheWaitOfItsOriginalAndNothingIsLeasedAfterIt) {
  auto replica = StartReplica();
  Enqueue(*replica->engine, 1);
  ASSERT_EQ(Claim(*replica->engine, Call(1, absl::Seconds(5)))->jobs.size(), 1u);
  ClaimCall call = Call(1, absl::Seconds(30));
  call.request_id = "r";
  auto original = std::async(std::launch::async, [&] { return Claim(*replica->engine, call); });
  while (replica->metrics.polls_parked.Add({{"kind", "claim"}}).Value() < 1) std::this_thread::yield();
  ClaimCall repeat = call;
  repeat.wait = absl::ZeroDuration();
  auto collected = Claim(*replica->engine, repeat);
  ASSERT_TRUE(collected.ok()) << collected.status();
  EXPECT_TRUE(collected->jobs.empty());
  auto ended = original.get();
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_TRUE(ended->jobs.empty());
  Enqueue(*replica->engine, 1);
  EXPECT_EQ(Claim(*replica->engine, Call(1, absl::Seconds(5)))->jobs.size(), 1u);
}

// However the original, jobs and the repeat meet: what the original leased is what the repeat hears of.
TEST_F(EngineRepeatTest, ARepeatHearsOfEverythingThatItsOriginalLeased) {
  auto replica = StartReplica();
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    ClaimCall call = Call(3, absl::Seconds(30));
    call.request_id = absl::StrCat("r", round);
    std::promise<absl::StatusOr<ClaimAnswer>> answer;
    auto original = answer.get_future();
    replica->engine->Claim(call, In(20), [&](absl::StatusOr<ClaimAnswer> got) { answer.set_value(std::move(got)); });
    auto jobs = std::async(std::launch::async, [&] { Enqueue(*replica->engine, 3); });
    const int spins = static_cast<int>(random() % 400);
    for (int i = 0; i < spins; ++i) std::this_thread::yield();
    ClaimCall repeat = call;
    repeat.wait = absl::ZeroDuration();
    auto collected = Claim(*replica->engine, repeat);
    ASSERT_TRUE(collected.ok()) << collected.status();
    auto first = original.get();
    ASSERT_TRUE(first.ok()) << first.status();
    jobs.get();
    if (collected->replayed || !first->jobs.empty()) {
      EXPECT_EQ(collected->jobs.size(), first->jobs.size());
      for (const auto& job : first->jobs) {
        EXPECT_TRUE(std::any_of(collected->jobs.begin(), collected->jobs.end(),
                                [&](const auto& other) { return other.token.ToString() == job.token.ToString(); }));
      }
    }
    std::vector<store::ClaimedJob> held = collected->jobs.empty() ? first->jobs : collected->jobs;
    while (held.size() < 3) {
      auto rest = Claim(*replica->engine, Call(3, absl::Seconds(5)));
      ASSERT_TRUE(rest.ok()) << rest.status();
      ASSERT_FALSE(rest->jobs.empty()) << "a job was leased that nobody was told of";
      held.insert(held.end(), rest->jobs.begin(), rest->jobs.end());
    }
    Complete(*replica->engine, held);
  }
}

TEST_F(EngineRepeatTest, APollWithARequestIdWaitsQuietly) {
  auto replica = StartReplica();
  Enqueue(*replica->engine, 1);
  ASSERT_EQ(Claim(*replica->engine, Call(1, absl::Seconds(5)))->jobs.size(), 1u);
  ClaimCall call = Call(1, absl::Milliseconds(700));
  call.request_id = "quiet";
  call.lease = absl::Milliseconds(100);  // Its window is over before the poll is.
  auto empty = Claim(*replica->engine, call);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_TRUE(empty->jobs.empty());
  auto counts = replica->metrics.registry().Collect();
  for (const auto& family : counts) {
    if (family.name != "tenure_db_statement_duration_seconds") continue;
    for (const auto& metric : family.metric) {
      if (metric.label[0].value == "claim" || metric.label[0].value == "find_claim") {
        EXPECT_LE(metric.histogram.sample_count, 6u) << metric.label[0].value;
      }
    }
  }
}

}  // namespace
}  // namespace tenure::engine
