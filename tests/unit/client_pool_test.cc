// The worker pool at work: claims, outcomes, settles, slots. Against a fake daemon; leases are in
// client_pool_lease_test.cc, shutdown in client_pool_shutdown_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tenure/worker_pool.h"
#include "tests/support/fake_tenured.h"
#include "tests/support/running_pool.h"

namespace tenure::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FakeTenured;
using testing::PoolTestOptions;
using testing::RunningPool;

class Pool : public ::testing::Test {
 protected:
  // Runs until every job of the fake has been settled once, then stops.
  void WorkAll(WorkerPool& pool, const std::vector<std::string>& ids) {
    RunningPool running(pool);
    ASSERT_TRUE(daemon_.Await([&] {
      return std::all_of(ids.begin(), ids.end(),
                         [&](const std::string& id) { return !daemon_.job(id).settles.empty(); });
    }));
    EXPECT_TRUE(running.Stop().ok());
  }
  std::string Settled(const std::string& id) {
    const auto settles = daemon_.job(id).settles;
    return settles.size() == 1 ? settles[0] : std::to_string(settles.size()) + " settles";
  }

  FakeTenured daemon_;
  Client client_ = Client::FromChannels({daemon_.channel()});
  WorkerPoolOptions options_ = PoolTestOptions();
};

TEST_F(Pool, EachOutcomeSettlesInItsWay) {
  std::map<std::string, std::string> ids;
  for (const char* kind :
       {"complete", "fail", "retry", "snooze", "discard", "throw-std", "throw-int", "throw-discard", "throw-snooze"}) {
    ids[kind] = daemon_.Add(kind, "payload");
  }
  WorkerPool pool(client_, options_);
  pool.Handle("complete", [](JobContext& job) -> Outcome {
    EXPECT_EQ(job.payload().data, "payload");
    EXPECT_EQ(job.attempt(), 1);
    EXPECT_EQ(job.effect_key(), "effect-" + job.id());
    EXPECT_GT(job.deadline(), std::chrono::steady_clock::now());
    EXPECT_FALSE(job.stop_token().stop_requested());
    job.AddFollowUp({.queue = "q", .kind = "next"});
    return Complete{Payload::Text("done")};
  });
  pool.Handle("fail", [](JobContext&) -> Outcome { return Fail{"no luck", "Luck", "stack"}; });
  pool.Handle("retry", [](JobContext&) -> Outcome { return RetryAfter{seconds(7), "later"}; });
  pool.Handle("snooze", [](JobContext&) -> Outcome { return Snooze{seconds(8)}; });
  pool.Handle("discard", [](JobContext&) -> Outcome { return Discard{"never"}; });
  pool.Handle("throw-std", [](JobContext&) -> Outcome { throw std::runtime_error("broke \xff"); });
  pool.Handle("throw-int", [](JobContext&) -> Outcome { throw 42; });
  pool.Handle("throw-discard", [](JobContext&) -> Outcome { throw Discard{"thrown"}; });
  pool.Handle("throw-snooze", [](JobContext&) -> Outcome { throw Snooze{seconds(9)}; });
  std::vector<std::string> all;
  for (const auto& [kind, id] : ids) all.push_back(id);
  WorkAll(pool, all);

  EXPECT_EQ(Settled(ids["complete"]), "Complete");
  EXPECT_EQ(daemon_.job(ids["complete"]).result, "done");
  EXPECT_EQ(daemon_.job(ids["complete"]).follow_up_kinds, std::vector<std::string>{"next"});
  EXPECT_EQ(Settled(ids["fail"]), "Fail");
  EXPECT_EQ(daemon_.job(ids["fail"]).error, "no luck");
  EXPECT_FALSE(daemon_.job(ids["fail"]).non_retryable);
  EXPECT_EQ(Settled(ids["retry"]), "Fail");
  EXPECT_EQ(daemon_.job(ids["retry"]).delay, seconds(7));
  EXPECT_EQ(Settled(ids["snooze"]), "Snooze");
  EXPECT_EQ(daemon_.job(ids["snooze"]).delay, seconds(8));
  EXPECT_EQ(Settled(ids["discard"]), "Fail");
  EXPECT_TRUE(daemon_.job(ids["discard"]).non_retryable);
  EXPECT_EQ(Settled(ids["throw-std"]), "Fail");
  EXPECT_EQ(daemon_.job(ids["throw-std"]).error, "broke \xEF\xBF\xBD");  // A failure can always be reported.
  EXPECT_EQ(Settled(ids["throw-int"]), "Fail");
  EXPECT_NE(daemon_.job(ids["throw-int"]).error.find("int"), std::string::npos);
  EXPECT_TRUE(daemon_.job(ids["throw-discard"]).non_retryable);
  EXPECT_EQ(Settled(ids["throw-snooze"]), "Snooze");

  const PoolStats stats = pool.Stats();
  EXPECT_EQ(stats.acquired, 9);
  EXPECT_EQ(stats.completed, 1);
  EXPECT_EQ(stats.failed, 4);
  EXPECT_EQ(stats.discarded, 2);
  EXPECT_EQ(stats.snoozed, 2);
  EXPECT_EQ(stats.handler_exceptions, 2);
  EXPECT_EQ(stats.running + stats.waiting + stats.unsettled, 0);
}

TEST_F(Pool, AnUnknownKindIsSnoozedCountedAndWarnedAboutOnce) {
  const std::string first = daemon_.Add("stranger");
  const std::string second = daemon_.Add("stranger");
  std::atomic<int> warnings{0};
  options_.logger = [&](LogLevel level, std::string_view message) {
    if (level == LogLevel::kWarning && message.find("stranger") != std::string_view::npos) ++warnings;
  };
  WorkerPool pool(client_, options_);
  pool.Handle("known", [](JobContext&) -> Outcome { return {}; });
  WorkAll(pool, {first, second});
  EXPECT_EQ(Settled(first), "Snooze");
  EXPECT_EQ(daemon_.job(first).delay, seconds(30));
  EXPECT_EQ(pool.Stats().unknown_kind, 2);
  EXPECT_EQ(warnings, 1);
}

TEST_F(Pool, HandleOtherTakesTheKindsWithoutAHandler) {
  const std::string id = daemon_.Add("whatever");
  WorkerPool pool(client_, options_);
  pool.HandleOther([](JobContext& job) -> Outcome { return Complete{Payload::Text(job.kind())}; });
  WorkAll(pool, {id});
  EXPECT_EQ(daemon_.job(id).result, "whatever");
}

TEST_F(Pool, MiddlewareWrapsFromTheOutsideIn) {
  const std::string id = daemon_.Add("k");
  std::vector<std::string> trace;
  WorkerPool pool(client_, options_);
  for (const std::string name : {"outer", "inner"}) {
    pool.Use([&trace, name](JobContext& job, const Handler& next) {
      trace.push_back(name);
      Outcome outcome = next(job);
      trace.push_back(name);
      return outcome;
    });
  }
  pool.Handle("k", [&](JobContext&) -> Outcome {
    trace.push_back("handler");
    return {};
  });
  WorkAll(pool, {id});
  EXPECT_EQ(trace, (std::vector<std::string>{"outer", "inner", "handler", "inner", "outer"}));
}

TEST_F(Pool, FreeSlotsDriveClaimsAndBoundThem) {
  options_.slots = 3;
  WorkerPool pool(client_, options_);
  std::atomic<int> inside{0}, most{0};
  std::atomic<bool> go{false};
  pool.Handle("k", [&](JobContext&) -> Outcome {
    const int now = ++inside;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    go.wait(false);
    --inside;
    return {};
  });
  std::vector<std::string> ids;
  for (int i = 0; i < 10; ++i) ids.push_back(daemon_.Add("k"));
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return inside == 3; }));
  EXPECT_EQ(daemon_.leased(), 3);         // No more than there are slots.
  EXPECT_EQ(daemon_.inside("Claim"), 0);  // And no poll without a free slot.
  EXPECT_EQ(daemon_.claims().at(0).max_jobs(), 3);
  go = true;
  go.notify_all();
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 10; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(most, 3);
}

TEST_F(Pool, PrefetchedJobsWaitUnderTheirLeases) {
  options_.slots = 1;
  options_.prefetch = 4;
  WorkerPool pool(client_, options_);
  std::atomic<bool> go{false};
  pool.Handle("k", [&](JobContext&) -> Outcome {
    go.wait(false);
    return {};
  });
  for (int i = 0; i < 10; ++i) daemon_.Add("k");
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.leased() == 5 && pool.Stats().running == 1; }));
  EXPECT_EQ(pool.Stats().waiting, 4);
  go = true;
  go.notify_all();
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 10; }));
  EXPECT_TRUE(running.Stop().ok());
}

// Three answers get lost on the way: the first claim's, and one of each of the two that follow it.
TEST_F(Pool, AfterAFullAnswerASecondClaimGoesBesideTheNextAndNeverWaits) {
  options_.slots = 1;
  options_.prefetch = 2999;
  WorkerPool pool(client_, options_);
  std::atomic<bool> go{false};
  pool.Handle("k", [&](JobContext&) -> Outcome {
    go.wait(false);
    return {};
  });
  std::vector<std::string> ids;
  for (int i = 0; i < 3000; ++i) ids.push_back(daemon_.Add("k"));
  daemon_.LoseReplies("Claim", 3);
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().waiting == 2999; }));
  std::map<std::string, v1::ClaimRequest> claims;  // By request id.
  for (const v1::ClaimRequest& claim : daemon_.claims()) claims.emplace(claim.request_id(), claim);
  std::multiset<std::pair<int, bool>> sizes;
  for (const auto& [unused, claim] : claims) sizes.insert({claim.max_jobs(), claim.has_wait()});
  EXPECT_THAT(sizes, ::testing::ElementsAre(std::pair(1000, false), std::pair(1000, true), std::pair(1000, true)));
  for (const std::string& id : ids) EXPECT_EQ(daemon_.job(id).claims, 1);
  go = true;
  go.notify_all();
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 3000 && daemon_.inside("Claim") == 1; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(daemon_.leased(), 0);
}

TEST_F(Pool, ALostClaimReplyIsReplayedAndNothingStaysLeased) {
  for (int i = 0; i < 5; ++i) daemon_.Add("k");
  daemon_.LoseReplies("Claim", 2);
  options_.slots = 5;
  WorkerPool pool(client_, options_);
  std::atomic<int> runs{0};
  pool.Handle("k", [&](JobContext&) -> Outcome {
    ++runs;
    return {};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 5; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(runs, 5);
  EXPECT_EQ(pool.Stats().replayed, 1);
  const auto claims = daemon_.claims();
  ASSERT_GE(claims.size(), 3u);
  EXPECT_FALSE(claims[0].request_id().empty());
  EXPECT_EQ(claims[0].request_id(), claims[1].request_id());
  EXPECT_EQ(claims[0].request_id(), claims[2].request_id());
}

TEST_F(Pool, LostSettleRepliesAndFailedCallsAreRepeated) {
  const std::string done = daemon_.Add("k");
  const std::string failed = daemon_.Add("f");
  daemon_.LoseReplies("Complete", 2);
  daemon_.FailNext("Fail", 14, "DATABASE_UNAVAILABLE", 3);
  WorkerPool pool(client_, options_);
  pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
  pool.Handle("f", [](JobContext&) -> Outcome { return Fail{"x", {}, {}}; });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 1 && pool.Stats().failed == 1; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(Settled(done), "Complete");
  EXPECT_EQ(Settled(failed), "Fail");
  EXPECT_EQ(pool.Stats().settle_retries, 5);
}

TEST_F(Pool, WhileASettleIsInFlightTheNextOnesGather) {
  options_.slots = 100;
  for (int i = 0; i < 100; ++i) daemon_.Add("k");
  std::atomic<int> inside{0};
  std::atomic<bool> go{false};
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext&) -> Outcome {
    ++inside;
    go.wait(false);
    return {};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return inside == 100; }));
  go = true;
  go.notify_all();
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 100; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_LT(daemon_.calls("Complete"), 50);
}

TEST_F(Pool, ASettleThatHangsDoesNotHoldUpTheOthers) {
  // The daemon waits for a row that somebody's transaction holds.
  daemon_.Hold("Complete");
  const std::string first = daemon_.Add("k");
  WorkerPool pool(client_, options_);
  pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.inside("Complete") == 1; }));
  daemon_.Add("k");
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.inside("Complete") == 2; }));
  daemon_.LetGo("Complete");
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 2; }));
  EXPECT_TRUE(running.Stop().ok());
}

TEST_F(Pool, AnItemThatCannotPassIsFoundAndItsJobFailed) {
  // One result makes the call larger than the transport takes: the others must not suffer.
  daemon_.SetMaxBytes(100'000);
  options_.slots = 8;
  std::vector<std::string> ids;
  for (int i = 0; i < 7; ++i) ids.push_back(daemon_.Add("small"));
  ids.push_back(daemon_.Add("huge"));
  WorkerPool pool(client_, options_);
  pool.Handle("small", [](JobContext&) -> Outcome { return {}; });
  pool.Handle("huge", [](JobContext&) -> Outcome { return Complete{Payload::Bytes(std::string(200'000, 'x'))}; });
  WorkAll(pool, ids);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(Settled(ids[static_cast<size_t>(i)]), "Complete");
  EXPECT_EQ(Settled(ids[7]), "Fail");
  EXPECT_NE(daemon_.job(ids[7]).error.find("refused the result"), std::string::npos);
}

TEST_F(Pool, AResultThatTheDaemonRefusesFailsTheJob) {
  const std::string id = daemon_.Add("k");
  daemon_.RefuseItem("Complete", id, 3, "PAYLOAD_TOO_LARGE");
  WorkerPool pool(client_, options_);
  pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
  WorkAll(pool, {id});
  EXPECT_EQ(Settled(id), "Fail");
}

TEST_F(Pool, ALockedItemIsSettledAlone) {
  const std::string id = daemon_.Add("k");
  daemon_.RefuseItem("Complete", id, 14, "JOB_LOCKED", 3);
  WorkerPool pool(client_, options_);
  pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
  WorkAll(pool, {id});
  EXPECT_EQ(Settled(id), "Complete");
  EXPECT_EQ(pool.Stats().settle_retries, 3);
}

TEST_F(Pool, HooksSeeAJobFromClaimToSettle) {
  const std::string id = daemon_.Add("k");
  std::mutex mutex;
  std::vector<std::string> trace;
  const auto note = [&](std::string what) {
    std::lock_guard lock(mutex);
    trace.push_back(std::move(what));
  };
  options_.hooks.acquired = [&](const ClaimedJob& job) { note("acquired " + job.job.id); };
  options_.hooks.settled = [&](const SettledEvent& event) {
    note(std::string(event.verb) + " " + event.job.id + " " + std::string(ToString(event.result.state)));
    throw std::runtime_error("a hook that throws takes nothing down");
  };
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext&) -> Outcome {
    note("handler");
    return {};
  });
  WorkAll(pool, {id});
  EXPECT_EQ(trace, (std::vector<std::string>{"acquired " + id, "handler", "complete " + id + " COMPLETED"}));
}

TEST_F(Pool, HighPrioritiesStartFirstAmongWhatWaits) {
  options_.slots = 1;
  options_.prefetch = 3;
  for (int priority : {0, 5, -5, 9}) daemon_.Add("k", std::to_string(priority), priority);
  std::vector<std::string> order;
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext& job) -> Outcome {
    order.push_back(job.payload().data);
    return {};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 4; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(order, (std::vector<std::string>{"9", "5", "0", "-5"}));
}

TEST_F(Pool, ReservedSlotsStayFreeForUrgentJobs) {
  options_.slots = 3;
  options_.reservations = {{10, 1}};
  std::atomic<bool> go{false};
  std::atomic<int> low{0}, urgent{0};
  WorkerPool pool(client_, options_);
  pool.Handle("low", [&](JobContext&) -> Outcome {
    ++low;
    go.wait(false);
    return {};
  });
  pool.Handle("urgent", [&](JobContext&) -> Outcome {
    ++urgent;
    return {};
  });
  for (int i = 0; i < 6; ++i) daemon_.Add("low");
  RunningPool running(pool);
  // Two low jobs run; the poll for the third slot is parked and lets only urgent jobs in.
  ASSERT_TRUE(daemon_.Await([&] { return low == 2 && daemon_.inside("Claim") == 1; }));
  const auto claims = daemon_.claims();
  ASSERT_EQ(claims.back().reservations_size(), 1);
  EXPECT_EQ(claims.back().reservations(0).slots(), 1);
  daemon_.Add("urgent", "", 10);
  ASSERT_TRUE(daemon_.Await([&] { return urgent == 1 && daemon_.inside("Claim") == 1; }));
  EXPECT_EQ(low, 2);
  // When low jobs end, the parked poll keeps out jobs for which there is room now: it is sent anew.
  go = true;
  go.notify_all();
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 7; }));
  EXPECT_TRUE(running.Stop().ok());
}

TEST_F(Pool, ATenantsSurplusIsGivenBack) {
  options_.slots = 4;
  options_.slots_per_tenant = 1;
  std::vector<std::string> greedy;
  for (int i = 0; i < 3; ++i) greedy.push_back(daemon_.Add("k", "", 0, "greedy"));
  const std::string modest = daemon_.Add("k", "", 0, "modest");
  std::atomic<bool> go{false};
  std::atomic<int> inside{0};
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext&) -> Outcome {
    ++inside;
    go.wait(false);
    return {};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return inside == 2 && pool.Stats().released == 2; }));
  EXPECT_EQ(pool.Stats().not_admitted, 2);
  for (int i : {1, 2}) {
    EXPECT_EQ(Settled(greedy[static_cast<size_t>(i)]), "Release");
    EXPECT_EQ(daemon_.job(greedy[static_cast<size_t>(i)]).delay, seconds(1));
  }
  go = true;
  go.notify_all();
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 2; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(Settled(modest), "Complete");
}

TEST_F(Pool, ClaimsLeaveOutATenantThatHasAllItsSlots) {
  options_.slots = 4;
  options_.slots_per_tenant = 1;
  const std::string first = daemon_.Add("k", "", 0, "greedy");
  std::atomic<bool> go{false};
  std::atomic<int> inside{0};
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext&) -> Outcome {
    ++inside;
    go.wait(false);
    return {};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] {
    const auto claims = daemon_.claims();
    return inside == 1 && daemon_.inside("Claim") == 1 && claims.back().exclude_tenants_size() == 1;
  }));
  EXPECT_EQ(daemon_.claims().back().exclude_tenants(0), "greedy");
  const std::string second = daemon_.Add("k", "", 0, "greedy");
  const std::string modest = daemon_.Add("k", "", 0, "modest");
  ASSERT_TRUE(daemon_.Await([&] { return inside == 2; }));
  EXPECT_FALSE(daemon_.job(second).leased);
  EXPECT_EQ(pool.Stats().not_admitted, 0);
  // The poll that left it out does not keep it waiting once it has a slot again.
  go = true;
  go.notify_all();
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 3; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(daemon_.job(second).claims, 1);
}

TEST_F(Pool, TwoPoolsShareALimiter) {
  const auto limiter = SlotLimiter::Make({.slots = 1});
  options_.limiter = limiter;
  options_.slots = 4;
  std::atomic<int> inside{0}, most{0};
  WorkerPool first(client_, options_);
  WorkerPoolOptions other = options_;
  WorkerPool second(client_, other);
  for (WorkerPool* pool : {&first, &second}) {
    pool->Handle("k", [&](JobContext&) -> Outcome {
      const int now = ++inside;
      for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
      }
      --inside;
      return {};
    });
  }
  RunningPool one(first);
  RunningPool two(second);
  for (int i = 0; i < 50; ++i) daemon_.Add("k");
  ASSERT_TRUE(daemon_.Await([&] { return first.Stats().completed + second.Stats().completed == 50; }));
  EXPECT_TRUE(one.Stop().ok());
  EXPECT_TRUE(two.Stop().ok());
  EXPECT_EQ(most, 1);
  EXPECT_EQ(limiter->in_use(), 0);
}

TEST_F(Pool, ASuppliedExecutorRunsTheHandlers) {
  std::vector<std::jthread> threads;
  std::mutex mutex;
  std::atomic<int> tasks{0};
  options_.executor = [&](std::function<void()> task) {
    ++tasks;
    std::lock_guard lock(mutex);
    threads.emplace_back(std::move(task));
  };
  std::vector<std::string> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(daemon_.Add("k"));
  WorkerPool pool(client_, options_);
  pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
  WorkAll(pool, ids);
  EXPECT_GE(tasks, 20);
}

TEST_F(Pool, DrainNoticesMoveThePollsToAnotherReplica) {
  Client both = Client::FromChannels({daemon_.channel(), daemon_.second_channel()});
  WorkerPool pool(both, options_);
  pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
  RunningPool running(pool);
  daemon_.NotifyDrain();
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.calls("AwaitNotices") >= 2; }));
  daemon_.FailNext("Claim", 14, "DRAINING", 1);
  const std::string id = daemon_.Add("k");
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.job(id).ended; }));
  daemon_.Add("k");
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 2; }));
  EXPECT_TRUE(running.Stop().ok());
}

TEST_F(Pool, AClaimThatCanNeverSucceedEndsTheRun) {
  daemon_.FailNext("Claim", 3, "INVALID_FIELD");
  WorkerPool pool(client_, options_);
  pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
  const absl::Status status = pool.Run({});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST_F(Pool, WorkOneAndDrainWorkWhatIsThere) {
  WorkerPool pool(client_, options_);
  std::atomic<int> runs{0};
  pool.Handle("k", [&](JobContext&) -> Outcome {
    ++runs;
    return {};
  });
  auto one = pool.WorkOne();
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_FALSE(*one);
  for (int i = 0; i < 25; ++i) daemon_.Add("k");
  one = pool.WorkOne();
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_TRUE(*one);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(daemon_.leased(), 0);
  const auto drained = pool.Drain();
  ASSERT_TRUE(drained.ok()) << drained.status();
  EXPECT_EQ(*drained, 24);
  EXPECT_EQ(runs, 25);
  EXPECT_EQ(daemon_.leased(), 0);
  for (const auto& claim : daemon_.claims()) EXPECT_FALSE(claim.has_wait());
}

TEST_F(Pool, DrainWorksWhatItsHandlersMake) {
  WorkerPool pool(client_, options_);
  pool.Handle("parent", [&](JobContext&) -> Outcome {
    daemon_.Add("child");
    return {};
  });
  pool.Handle("child", [](JobContext&) -> Outcome { return {}; });
  daemon_.Add("parent");
  const auto drained = pool.Drain();
  ASSERT_TRUE(drained.ok()) << drained.status();
  EXPECT_EQ(*drained, 2);
}

TEST_F(Pool, OptionsThatCannotWorkAreNamed) {
  const auto field = [&](const std::function<void(WorkerPoolOptions&)>& spoil) {
    WorkerPoolOptions options = options_;
    spoil(options);
    WorkerPool pool(client_, options);
    pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
    return ErrorMetadata(pool.Run({}))["field"];
  };
  EXPECT_EQ(field([](auto& o) { o.queues.clear(); }), "queues");
  EXPECT_EQ(field([](auto& o) { o.queues[0].weight = 0; }), "queues.weight");
  EXPECT_EQ(field([](auto& o) { o.slots = 0; }), "slots");
  EXPECT_EQ(field([](auto& o) { o.lease = milliseconds(999); }), "lease");
  EXPECT_EQ(field([](auto& o) { o.poll_wait = seconds(61); }), "poll_wait");
  EXPECT_EQ(field([](auto& o) { o.reservations = {{0, 99}}; }), "reservations");
  EXPECT_EQ(field([](auto& o) { o.worker_id = "\xff"; }), "worker_id");
  EXPECT_EQ(field([](auto& o) { o.grace = -seconds(1); }), "grace");
  WorkerPool empty(client_, options_);
  EXPECT_EQ(ErrorMetadata(empty.Run({}))["field"], "handlers");
  EXPECT_EQ(daemon_.calls("Claim"), 0);
}

}  // namespace
}  // namespace tenure::client
