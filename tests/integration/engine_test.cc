// The engine on a real PostgreSQL: batching, long polls, cursors over several replicas, leases that run out, notices,
// waiting for outcomes.
#include "server/engine/engine.h"

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

class EngineTest : public tenure::testing::EngineFixture {};

TEST_F(EngineTest, JobsFlowThrough) {
  auto replica = StartReplica();
  EXPECT_EQ(Enqueue(*replica->engine, 250).size(), 250u);
  size_t done = 0;
  while (done < 250) {
    auto claimed = Claim(*replica->engine, Call(100, absl::Seconds(2)));
    ASSERT_TRUE(claimed.ok()) << claimed.status();
    ASSERT_FALSE(claimed->jobs.empty());
    for (const SettleAnswer& answer : Complete(*replica->engine, claimed->jobs))
      EXPECT_TRUE(answer.status.ok()) << answer.status;
    done += claimed->jobs.size();
  }
  EXPECT_EQ(Sql("select count(*) from tenure.history"), "250");
  auto empty = Claim(*replica->engine, Call(1));
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->jobs.empty());
}

TEST_F(EngineTest, AParkedPollOfAQueueThatDoesNotExistIsWoken) {
  auto replica = StartReplica();
  auto polled =
      std::async(std::launch::async, [&] { return Claim(*replica->engine, Call(1, absl::Seconds(10), "later")); });
  while (replica->engine->health().event_lag > absl::Seconds(5)) std::this_thread::yield();
  Enqueue(*replica->engine, 1, "later");
  auto claimed = polled.get();
  ASSERT_TRUE(claimed.ok()) << claimed.status();
  EXPECT_EQ(claimed->jobs.size(), 1u);
}

// The queue's first job may be told of while the polls that want it are not yet known to: they are woken all the same.
TEST_F(EngineTest, ThePollsOfAQueueThatIsMadeAtThatMomentAreAllWoken) {
  auto a = StartReplica("a");
  auto b = StartReplica("b");
  for (int round = 0; round < 25; ++round) {
    const std::string name = absl::StrCat("new-", round);
    const auto began = Clock::Real().Now();
    auto here = std::async(std::launch::async, [&] { return Claim(*a->engine, Call(1, absl::Seconds(10), name)); });
    auto there = std::async(std::launch::async, [&] { return Claim(*b->engine, Call(1, absl::Seconds(10), name)); });
    Enqueue(*a->engine, 2, name);
    for (auto* polled : {&here, &there}) {
      auto claimed = polled->get();
      ASSERT_TRUE(claimed.ok()) << claimed.status();
      EXPECT_EQ(claimed->jobs.size(), 1u) << name;
    }
    EXPECT_LT(Clock::Real().Now() - began, std::chrono::seconds(3)) << name;
  }
}

TEST_F(EngineTest, OnePollsSmallByteBudgetLeavesTheOthersTheirs) {
  auto replica = StartReplica();
  store::NewJob large;
  large.kind = "k";
  large.payload = {std::string(100'000, 'x'), "text/plain"};
  for (int round = 0; round < 5; ++round) {
    ClaimCall small = Call(10, absl::Seconds(10));
    small.max_bytes = 150'000;
    ClaimCall wide = Call(5, absl::Seconds(10));
    auto first = std::async(std::launch::async, [&] { return Claim(*replica->engine, small); });
    auto second = std::async(std::launch::async, [&] { return Claim(*replica->engine, wide); });
    ASSERT_EQ(Enqueue(*replica->engine, 6, "q", large).size(), 6u);
    for (auto* polled : {&first, &second}) {
      auto claimed = polled->get();
      ASSERT_TRUE(claimed.ok()) << claimed.status();
      ASSERT_FALSE(claimed->jobs.empty());
      EXPECT_EQ(claimed->jobs.size(), polled == &first ? 1u : 5u);
    }
  }
}

TEST_F(EngineTest, AnotherReplicasEnqueueAndTheSqlFunctionWakeAParkedPollInTime) {
  auto a = StartReplica("a");
  auto b = StartReplica("b");
  Enqueue(*a->engine, 1);
  ASSERT_EQ(Claim(*b->engine, Call(5, absl::Seconds(5)))->jobs.size(), 1u);
  for (int i = 0; i < 10; ++i) {
    auto polled = std::async(std::launch::async, [&] { return Claim(*b->engine, Call(5, absl::Seconds(10))); });
    const auto began = Clock::Real().Now();
    if (i % 2 == 0) {
      Enqueue(*a->engine, 1);
    } else {
      Sql("select tenure.enqueue('q', 'k', '{}')");
    }
    auto claimed = polled.get();
    ASSERT_TRUE(claimed.ok()) << claimed.status();
    EXPECT_EQ(claimed->jobs.size(), 1u);
    EXPECT_LT(Clock::Real().Now() - began, std::chrono::milliseconds(1000));
  }
}

// Events are read so seldom here that only a notification can be what wakes the poll.
TEST_F(EngineTest, DirectOnlyANotificationWakesAParkedPollOfAnotherReplica) {
  auto options = [](Options& o) {
    o.notify = true;
    o.event_interval = absl::Seconds(5);
  };
  auto a = StartReplica("a", options);
  auto b = StartReplica("b", options);
  Enqueue(*a->engine, 1);
  ASSERT_EQ(Claim(*a->engine, Call(1, absl::Seconds(5)))->jobs.size(), 1u);
  // Both listen once a first job has come through; then the waits are measured.
  std::vector<absl::Duration> waits;
  for (int i = 0; i < 40; ++i) {
    std::promise<absl::StatusOr<ClaimAnswer>> answer;
    auto got = answer.get_future();
    b->engine->Claim(Call(1, absl::Seconds(15)), In(20), [&](auto claimed) { answer.set_value(std::move(claimed)); });
    const absl::Time began = absl::Now();
    Enqueue(*a->engine, 1);
    auto claimed = got.get();
    ASSERT_TRUE(claimed.ok()) << claimed.status();
    ASSERT_EQ(claimed->jobs.size(), 1u);
    if (i >= 10) waits.push_back(absl::Now() - began);
  }
  std::sort(waits.begin(), waits.end());
  EXPECT_LT(waits[waits.size() / 2], absl::Seconds(1)) << "slowest " << waits.back();
  RecordProperty("median_ms", absl::StrCat(absl::ToDoubleMilliseconds(waits[waits.size() / 2])));
}

TEST_F(EngineTest, AsManyJobsAsAskedForAndNoMore) {
  auto replica = StartReplica();
  Enqueue(*replica->engine, 100);
  std::vector<std::future<absl::StatusOr<ClaimAnswer>>> polls;
  for (int i = 0; i < 32; ++i) {
    polls.push_back(std::async(std::launch::async, [&] { return Claim(*replica->engine, Call(1, absl::Seconds(5))); }));
  }
  std::set<int64_t> ids;
  for (auto& poll : polls) {
    auto answer = poll.get();
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_EQ(answer->jobs.size(), 1u);
    EXPECT_TRUE(ids.insert(answer->jobs[0].job.id.seq).second);
  }
  EXPECT_EQ(Sql("select count(*) from tenure.job where state = 4"), "32");
}

TEST_F(EngineTest, ACallerThatHasGoneGetsNoLease) {
  auto replica = StartReplica();
  Enqueue(*replica->engine, 1);
  Complete(*replica->engine, Claim(*replica->engine, Call(1, absl::Seconds(5)))->jobs);
  std::promise<absl::Status> answered;
  auto handle = replica->engine->Claim(Call(1, absl::Seconds(10)), In(20), [&](absl::StatusOr<ClaimAnswer> answer) {
    answered.set_value(answer.status());
  });
  handle->Cancel();
  EXPECT_TRUE(absl::IsCancelled(answered.get_future().get()));
  Enqueue(*replica->engine, 1);
  auto claimed = Claim(*replica->engine, Call(1, absl::Seconds(5)));
  ASSERT_EQ(claimed->jobs.size(), 1u);
  EXPECT_EQ(claimed->jobs[0].token.number, 1);
}

TEST_F(EngineTest, AnExpiredLeaseRunsAgain) {
  auto replica = StartReplica();
  Enqueue(*replica->engine, 3);
  ClaimCall call = Call(3, absl::Seconds(5));
  call.lease = absl::Milliseconds(300);
  auto first = Claim(*replica->engine, call);
  ASSERT_EQ(first->jobs.size(), 3u);
  size_t again = 0;
  while (again < 3) {
    auto second = Claim(*replica->engine, Call(3, absl::Seconds(10)));
    ASSERT_TRUE(second.ok()) << second.status();
    ASSERT_FALSE(second->jobs.empty());
    again += second->jobs.size();
    for (const auto& job : second->jobs) EXPECT_EQ(job.job.crashes, 1);
  }
  for (const SettleAnswer& answer : Complete(*replica->engine, first->jobs)) {
    EXPECT_EQ(DetailsOf(answer.status).reason, "LEASE_LOST");
  }
}

TEST_F(EngineTest, ACancelOnOneReplicaIsHeardOnAnother) {
  auto a = StartReplica("a");
  auto b = StartReplica("b");
  const store::JobId id = Enqueue(*a->engine, 1)[0].id;
  ASSERT_EQ(Claim(*a->engine, Call(1, absl::Seconds(5)))->jobs.size(), 1u);
  auto heard = std::async(std::launch::async, [&] {
    return Await<NoticesAnswer>([&](auto done) { b->engine->AwaitNotices("w", {}, absl::Seconds(10), In(20), done); });
  });
  auto cancelled = Await<std::vector<CancelAnswer>>([&](auto done) { a->engine->Cancel({id}, "stop", In(5), done); });
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  auto notices = heard.get();
  ASSERT_TRUE(notices.ok()) << notices.status();
  ASSERT_EQ(notices->notices.size(), 1u);
  EXPECT_EQ(notices->notices[0].job, id);
  // What was seen is not told again.
  auto again = Await<NoticesAnswer>(
      [&](auto done) { b->engine->AwaitNotices("w", {notices->notices[0].id}, absl::ZeroDuration(), In(20), done); });
  EXPECT_TRUE(again->notices.empty());
}

TEST_F(EngineTest, GetWaitsForTheOutcomeOnAnyReplica) {
  auto a = StartReplica("a");
  auto b = StartReplica("b");
  const store::JobId id = Enqueue(*a->engine, 1)[0].id;
  auto waiting = std::async(std::launch::async, [&] {
    return Await<store::Job>([&](auto done) { b->engine->Get(id, absl::Seconds(10), In(20), done); });
  });
  Complete(*a->engine, Claim(*a->engine, Call(1, absl::Seconds(5)))->jobs);
  auto job = waiting.get();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state, store::JobState::kCompleted);
  EXPECT_EQ(job->max_attempts, 20);
}

TEST_F(EngineTest, AnApplicationsOpenTransactionDelaysNobodyElse) {
  auto replica = StartReplica();
  Enqueue(*replica->engine, 50);
  auto claimed = Claim(*replica->engine, Call(50, absl::Seconds(5)));
  ASSERT_EQ(claimed->jobs.size(), 50u);
  auto app = store::postgres::Connection::Open(database_.url(), "app", absl::Seconds(5)).value();
  store::postgres::Transaction tx(*app, {absl::Seconds(30)});
  const std::string settle = absl::StrCat("select tenure.complete('", claimed->jobs[0].token.ToString(), "')");
  ASSERT_TRUE(tx.Run(settle, store::postgres::Params()).ok());
  std::vector<store::ExtendItem> items;
  for (const auto& job : claimed->jobs) items.push_back({job.token, absl::Seconds(60), std::nullopt});
  const std::vector<store::ExtendItem> rest(items.begin() + 1, items.end());
  const auto began = Clock::Real().Now();
  auto all = std::async(std::launch::async, [&] {
    return Await<std::vector<ExtendAnswer>>([&](auto done) { replica->engine->Extend(items, In(10), done); });
  });
  auto others = Await<std::vector<ExtendAnswer>>([&](auto done) { replica->engine->Extend(rest, In(10), done); });
  EXPECT_LT(Clock::Real().Now() - began, std::chrono::seconds(2));
  for (const ExtendAnswer& answer : *others) EXPECT_TRUE(answer.status.ok()) << answer.status;
  ASSERT_TRUE(tx.Commit().ok());
  auto answers = all.get();
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ(DetailsOf((*answers)[0].status).reason, "ALREADY_SETTLED");
  for (size_t i = 1; i < answers->size(); ++i) EXPECT_TRUE((*answers)[i].status.ok()) << (*answers)[i].status;
}

TEST_F(EngineTest, PausedQueuesServeAgainAfterResume) {
  auto a = StartReplica("a");
  auto b = StartReplica("b");
  Enqueue(*a->engine, 2);
  ASSERT_TRUE(Await<QueueInfo>([&](auto done) { a->engine->SetPaused("q", true, done); }).ok());
  EXPECT_TRUE(Claim(*b->engine, Call(5, absl::Milliseconds(200)))->jobs.empty());
  auto polled = std::async(std::launch::async, [&] { return Claim(*b->engine, Call(5, absl::Seconds(10))); });
  ASSERT_TRUE(Await<QueueInfo>([&](auto done) { a->engine->SetPaused("q", false, done); }).ok());
  EXPECT_EQ(polled.get()->jobs.size(), 2u);
}

TEST_F(EngineTest, APauseThatNobodySawStrandsNothing) {
  auto a = StartReplica("a");
  auto b = StartReplica("b");
  for (int i = 0; i < 6; ++i) {
    const std::string queue = absl::StrCat("paused-", i);
    Enqueue(*a->engine, 1, queue);
    // Within one event interval, so that the pause and the resume reach A as one change.
    ASSERT_TRUE(Await<QueueInfo>([&](auto done) { b->engine->SetPaused(queue, true, done); }).ok());
    EXPECT_TRUE(Claim(*a->engine, Call(1, absl::ZeroDuration(), queue)).ok());
    ASSERT_TRUE(Await<QueueInfo>([&](auto done) { b->engine->SetPaused(queue, false, done); }).ok());
    EXPECT_EQ(Claim(*a->engine, Call(1, absl::Seconds(10), queue))->jobs.size(), 1u) << queue;
  }
}

TEST_F(EngineTest, AMissedRowIsServedToReservedSlots) {
  auto replica = StartReplica();
  store::NewJob high;
  high.kind = "k";
  high.priority = 50;
  const store::JobId id = Enqueue(*replica->engine, 1, "q", high)[0].id;
  auto other = store::postgres::Connection::Open(database_.url(), "other", absl::Seconds(5)).value();
  auto tx =
      std::make_unique<store::postgres::Transaction>(*other, store::postgres::Transaction::Limits{absl::Seconds(30)});
  const std::string lock = absl::StrCat("select 1 from tenure.job where id = ", id.seq, " for update");
  ASSERT_TRUE(tx->Run(lock, store::postgres::Params()).ok());
  ClaimCall call = Call(1, absl::Seconds(10));
  call.reservations = {{10, 1}};
  auto polled = std::async(std::launch::async, [&] { return Claim(*replica->engine, call); });
  // Seen while it is locked, then free again.
  EXPECT_TRUE(Claim(*replica->engine, Call(1, absl::Milliseconds(100)))->jobs.empty());
  tx.reset();
  EXPECT_EQ(polled.get()->jobs.size(), 1u);
}

TEST_F(EngineTest, PrioritiesAndReservedSlots) {
  auto replica = StartReplica();
  store::NewJob high;
  high.kind = "k";
  high.priority = 5;
  Enqueue(*replica->engine, 4);
  ClaimCall call = Call(3, absl::Seconds(5));
  call.reservations = {{5, 2}};
  auto low = Claim(*replica->engine, call);
  ASSERT_TRUE(low.ok()) << low.status();
  EXPECT_EQ(low->jobs.size(), 1u);
  Enqueue(*replica->engine, 4, "q", high);
  auto reserved = Claim(*replica->engine, call);
  ASSERT_EQ(reserved->jobs.size(), 3u);
  EXPECT_EQ(reserved->jobs[0].job.priority, 5);
  auto rest = Claim(*replica->engine, Call(10, absl::Seconds(5)));
  ASSERT_EQ(rest->jobs.size(), 4u);
  EXPECT_EQ(rest->jobs[0].job.priority, 5);
  EXPECT_EQ(rest->jobs[3].job.priority, 0);
}

TEST_F(EngineTest, JobsOfACallKeepItsOrderWhicheverKeysTheyHave) {
  auto replica = StartReplica();
  std::vector<EnqueueItem> items;
  for (int i = 0; i < 60; ++i) {
    store::NewJob job;
    job.kind = "k";
    job.group = "g";
    if (i % 3 == 1) job.idempotency_key = absl::StrCat(99 - i);
    if (i % 3 == 2) job.unique = store::Unique{.key = absl::StrCat(99 - i)};
    items.push_back({"q", job});
  }
  auto outcomes =
      Await<std::vector<store::EnqueueOutcome>>([&](auto done) { replica->engine->Enqueue(items, In(10), done); });
  ASSERT_TRUE(outcomes.ok()) << outcomes.status();
  for (size_t i = 0; i < outcomes->size(); ++i) {
    ASSERT_TRUE((*outcomes)[i].status.ok()) << (*outcomes)[i].status;
    if (i > 0) {
      EXPECT_GT((*outcomes)[i].id.seq, (*outcomes)[i - 1].id.seq) << i;
    }
  }
}

TEST_F(EngineTest, AFullQueueShedsWhatIsBeyondItsBoundAndSaysWhenToComeAgain) {
  auto replica = StartReplica();
  store::QueueSettings settings;
  settings.max_depth = 10;
  auto made = Await<QueueInfo>([&](auto done) { replica->engine->CreateQueue("q", settings, false, done); });
  ASSERT_TRUE(made.ok()) << made.status();
  const auto shed = [](const std::vector<store::EnqueueOutcome>& outcomes) {
    return std::count_if(outcomes.begin(), outcomes.end(), [](const store::EnqueueOutcome& outcome) {
      if (outcome.status.ok()) return false;
      EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(DetailsOf(outcome.status).reason, "QUEUE_FULL");
      EXPECT_TRUE(DetailsOf(outcome.status).retry_after.has_value());
      return true;
    });
  };
  EXPECT_EQ(shed(Enqueue(*replica->engine, 4)), 0);
  EXPECT_EQ(shed(Enqueue(*replica->engine, 9)), 3);
  EXPECT_EQ(shed(Enqueue(*replica->engine, 2)), 2);
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "10");
  // Leased jobs count; ended ones do not.
  auto claimed = Claim(*replica->engine, Call(6));
  ASSERT_EQ(claimed->jobs.size(), 6u);
  EXPECT_EQ(shed(Enqueue(*replica->engine, 1)), 1);
  Complete(*replica->engine, claimed->jobs);
  const auto deadline = In(5);
  int64_t accepted = 0;
  while (accepted < 6 && Clock::Real().Now() < deadline) accepted += 1 - shed(Enqueue(*replica->engine, 1));
  EXPECT_EQ(accepted, 6);
  EXPECT_EQ(shed(Enqueue(*replica->engine, 1)), 1);
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "10");
}

std::vector<EnqueueItem> OfTenants(const std::vector<std::string>& tenants) {
  std::vector<EnqueueItem> items;
  for (const std::string& tenant : tenants) {
    store::NewJob job;
    job.kind = "k";
    job.tenant = tenant;
    items.push_back({"q", job});
  }
  return items;
}

TEST_F(EngineTest, ATenantsBoundHoldsNobodyElse) {
  auto replica = StartReplica();
  store::QueueSettings settings;
  settings.max_tenant_depth = 3;
  auto made = Await<QueueInfo>([&](auto done) { replica->engine->CreateQueue("q", settings, false, done); });
  ASSERT_TRUE(made.ok()) << made.status();
  const std::vector<EnqueueItem> items = OfTenants({"a", "b", "a", "a", "", "a", "b", "", "", "", "a"});
  auto outcomes =
      Await<std::vector<store::EnqueueOutcome>>([&](auto done) { replica->engine->Enqueue(items, In(10), done); });
  ASSERT_TRUE(outcomes.ok()) << outcomes.status();
  std::string refused;
  for (const store::EnqueueOutcome& outcome : *outcomes) {
    refused += outcome.status.ok() ? '.' : 'x';
    EXPECT_EQ(DetailsOf(outcome.status).reason, outcome.status.ok() ? "" : "TENANT_FULL");
  }
  EXPECT_EQ(refused, ".....x....x");
  EXPECT_EQ(Sql("select count(*) from tenure.job where tenant = 'a'"), "3");
  // When one of its jobs has ended there is room at once.
  ClaimCall call = Call(1);
  auto claimed = Claim(*replica->engine, call);
  ASSERT_EQ(claimed->jobs.size(), 1u);
  EXPECT_EQ(claimed->jobs[0].job.tenant, "a");
  Complete(*replica->engine, claimed->jobs);
  outcomes = Await<std::vector<store::EnqueueOutcome>>([&](auto done) {
    replica->engine->Enqueue({items[0], items[0]}, In(10), done);
  });
  EXPECT_TRUE((*outcomes)[0].status.ok());
  EXPECT_FALSE((*outcomes)[1].status.ok());
}

TEST_F(EngineTest, WhatATenantHasTooManyOfTakesNoRoomFromOthers) {
  auto replica = StartReplica();
  store::QueueSettings settings;
  settings.max_depth = 5;
  settings.max_tenant_depth = 3;
  auto made = Await<QueueInfo>([&](auto done) { replica->engine->CreateQueue("q", settings, false, done); });
  ASSERT_TRUE(made.ok()) << made.status();
  const std::vector<EnqueueItem> items = OfTenants({"a", "a", "a", "a", "a", "a", "", "b", "b"});
  auto outcomes =
      Await<std::vector<store::EnqueueOutcome>>([&](auto done) { replica->engine->Enqueue(items, In(10), done); });
  ASSERT_TRUE(outcomes.ok()) << outcomes.status();
  std::vector<std::string> reasons;
  for (const store::EnqueueOutcome& outcome : *outcomes) reasons.push_back(DetailsOf(outcome.status).reason);
  EXPECT_EQ(reasons,
            (std::vector<std::string>{"", "", "", "TENANT_FULL", "TENANT_FULL", "TENANT_FULL", "", "", "QUEUE_FULL"}));
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "5");
}

TEST_F(EngineTest, SeveralQueuesInStrictOrderAndByWeight) {
  auto replica = StartReplica();
  Enqueue(*replica->engine, 300, "a");
  Enqueue(*replica->engine, 300, "b");
  ClaimCall strict = Call(1, absl::Seconds(5));
  strict.queues = {{"b", 1}, {"a", 1}};
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(replica->engine->QueueName(Claim(*replica->engine, strict)->jobs[0].job.id.queue), "b");
  ClaimCall weighted = Call(1, absl::Seconds(5));
  weighted.queues = {{"a", 1}, {"b", 3}};
  weighted.weighted = true;
  std::map<std::string, int> served;
  for (int i = 0; i < 200; ++i)
    ++served[replica->engine->QueueName(Claim(*replica->engine, weighted)->jobs[0].job.id.queue)];
  EXPECT_GT(served["b"], 120);
  EXPECT_GT(served["a"], 20);
}

TEST_F(EngineTest, StopAnswersEveryone) {
  auto replica = StartReplica();
  std::vector<std::future<absl::StatusOr<ClaimAnswer>>> polls;
  for (int i = 0; i < 20; ++i) {
    polls.push_back(
        std::async(std::launch::async, [&] { return Claim(*replica->engine, Call(1, absl::Seconds(15))); }));
  }
  Enqueue(*replica->engine, 1);
  while (Sql("select count(*) from tenure.job where state = 4") != "1") std::this_thread::yield();
  replica->engine->Drain();
  size_t jobs = 0;
  for (auto& poll : polls) {
    auto answer = poll.get();
    if (answer.ok()) jobs += answer->jobs.size();
  }
  EXPECT_EQ(jobs, 1u);
  EXPECT_EQ(DetailsOf(Claim(*replica->engine, Call(1)).status()).reason, "DRAINING");
  replica->engine->Stop(In(5));
}

}  // namespace
}  // namespace tenure::engine
