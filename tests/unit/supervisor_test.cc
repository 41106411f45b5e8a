// The supervisor on a clock that only the test moves: each way in which a run can end, and what follows. Layer: tests.
#include "server/background/supervisor.h"

#include <atomic>
#include <stdexcept>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/leader_store.h"
#include "tests/support/manual_clock.h"

namespace tenure::background {
namespace {

using ::testing::HasSubstr;
using testing::LeaderStore;
using testing::ManualClock;

// An odd length, so that no timer of a lease falls together with another one that a test awaits.
constexpr absl::Duration kThird = absl::Milliseconds(2103);
const absl::Duration kLease = 3 * kThird;
constexpr absl::Duration kLook = absl::Milliseconds(500);  // Between two looks at a lease that another holds.

class FunctionWorker : public Worker {
 public:
  explicit FunctionWorker(std::function<absl::Status(RunContext&)> run) : run_(std::move(run)) {}
  absl::Status Run(RunContext& context) override { return run_(context); }

 private:
  const std::function<absl::Status(RunContext&)> run_;
};

// Runs until stopped.
absl::Status Healthy(RunContext& context) {
  context.WaitUntil(Clock::TimePoint::max());
  return absl::OkStatus();
}

class SupervisorTest : public ::testing::Test {
 protected:
  // Ends the supervisor with the test's body, whose variables the workers use.
  struct Running {
    std::unique_ptr<Supervisor>& supervisor;
    ~Running() { supervisor.reset(); }
  };

  void AddWorker(std::string_view name, std::function<absl::Status(RunContext&)> run,
                 Leadership leadership = Leadership::kOuterLease) {
    entries_.push_back({.name = name,
                        .help = "",
                        .leadership = leadership,
                        .tunables = {},
                        .make = [this, name, run](const Dependencies&) -> std::unique_ptr<Worker> {
                          store_.With([&] { ++built_[std::string(name)]; });
                          return std::make_unique<FunctionWorker>(run);
                        }});
  }

  [[nodiscard]] Running Start(int32_t replica = 7) {
    replica_ = replica;
    Dependencies dependencies;
    dependencies.store = &store_;
    dependencies.clock = &clock_;
    supervisor_ = std::make_unique<Supervisor>(
        entries_, dependencies, metrics_, [this] { return replica_.load(); },
        SupervisorOptions{.lease = lease_, .acquire_interval = kLook});
    supervisor_->Start();
    return Running{supervisor_};
  }

  absl::Status Stop() { return supervisor_->Stop(clock_.Now() + std::chrono::seconds(1)); }

  // The worker was built so many times, in all.
  bool AwaitBuilt(const std::string& name, int times) {
    return store_.Await([&] { return built_[name] == times; });
  }
  bool AwaitReleased(const std::string& name, int times) {
    return store_.Await([&] { return store_.releases[name] == times; });
  }
  int Built(const std::string& name) {
    int built = 0;
    store_.With([&] { built = built_[name]; });
    return built;
  }
  double Panics(const std::string& name) {
    return metrics_.background_panics.Add({{"worker", name}, {"shard", "-"}}).Value();
  }
  double Leads(const std::string& name) { return metrics_.background_leader.Add({{"worker", name}}).Value(); }
  WorkerState State(const std::string& name) {
    for (const WorkerState& state : supervisor_->States()) {
      if (state.name == name) return state;
    }
    ADD_FAILURE() << "no worker " << name;
    return {};
  }

  absl::Duration lease_ = kLease;
  ManualClock clock_;
  LeaderStore store_;
  Metrics metrics_;
  std::map<std::string, int> built_;  // Guarded by store_'s lock.
  std::atomic<int32_t> replica_{0};
  std::vector<WorkerEntry> entries_;
  std::unique_ptr<Supervisor> supervisor_;
};

TEST_F(SupervisorTest, LeadsRunsAndReleasesOnStop) {
  std::atomic<int64_t> term = 0;
  std::atomic<bool> started = false;
  AddWorker("a", [&](RunContext& context) {
    term = context.fence().term;
    started = true;
    started.notify_all();
    return Healthy(context);
  });
  const Running running = Start();
  started.wait(false);
  EXPECT_EQ(Leads("a"), 1);
  EXPECT_TRUE(State("a").leading);
  EXPECT_EQ(State("a").term, 1);
  EXPECT_EQ(Stop(), absl::OkStatus());
  EXPECT_EQ(term, 1);
  EXPECT_TRUE(AwaitReleased("a", 1));
  EXPECT_EQ(Leads("a"), 0);
  EXPECT_EQ(Panics("a"), 0);
  EXPECT_EQ(State("a").restarts, 0);
}

TEST_F(SupervisorTest, TakesNoLeaseBeforeTheReplicaIsRegistered) {
  AddWorker("a", Healthy);
  const Running running = Start(0);
  ASSERT_TRUE(clock_.StepTo(kLook));
  ASSERT_TRUE(clock_.AwaitDeadline(kLook));
  store_.With([&] { EXPECT_EQ(store_.acquire_calls["a"], 0); });
  replica_ = 7;
  ASSERT_TRUE(clock_.StepTo(kLook));
  EXPECT_TRUE(AwaitBuilt("a", 1));
}

TEST_F(SupervisorTest, RenewsAtAThirdWhileTheLoopIsBusy) {
  std::atomic<bool> leave = false;
  AddWorker("a", [&](RunContext&) {
    leave.wait(false);  // A loop that never looks at its stop token.
    return absl::OkStatus();
  });
  const Running running = Start();
  ASSERT_TRUE(AwaitBuilt("a", 1));
  for (int i = 1; i <= 4; ++i) {
    ASSERT_TRUE(clock_.StepTo(kThird));
    ASSERT_TRUE(store_.Await([&] { return store_.renewals["a"] == i; }));
  }
  EXPECT_TRUE(State("a").leading) << "longer than a lease";
  leave = true;
  leave.notify_all();
  EXPECT_TRUE(AwaitReleased("a", 1));
}

TEST_F(SupervisorTest, WaitsWhileAnotherLeads) {
  AddWorker("a", Healthy);
  store_.With([&] { store_.held_elsewhere["a"] = true; });
  const Running running = Start();
  ASSERT_TRUE(clock_.StepTo(kLook));
  ASSERT_TRUE(clock_.AwaitDeadline(kLook));
  EXPECT_EQ(Built("a"), 0);
  EXPECT_FALSE(State("a").leading);
  store_.With([&] { store_.held_elsewhere["a"] = false; });
  clock_.Advance(kLook);
  EXPECT_TRUE(AwaitBuilt("a", 1));
}

TEST_F(SupervisorTest, ADatabaseThatIsAwayIsTriedAgainWithoutGrowingPauses) {
  AddWorker("a", Healthy);
  store_.With([&] { store_.acquire_error["a"] = absl::UnavailableError("away"); });
  const Running running = Start();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(clock_.StepTo(kLook));
  ASSERT_TRUE(clock_.AwaitDeadline(kLook));
  EXPECT_THAT(State("a").last_error, HasSubstr("away"));
  store_.With([&] { store_.acquire_error.clear(); });
  clock_.Advance(kLook);
  EXPECT_TRUE(AwaitBuilt("a", 1));
  EXPECT_EQ(State("a").last_error, "");
}

// 1 s, 5 s, 30 s, 2 min, 2 min; each time the lease is released and taken anew, with a new term.
TEST_F(SupervisorTest, AnythingThrownIsAPanicAndRestartsAfterGrowingPauses) {
  struct Unknown {};
  std::atomic<int> run = 0;
  AddWorker("a", [&](RunContext&) -> absl::Status {
    switch (run++) {
      case 0:
        throw std::runtime_error("broken");
      case 1:
        throw 42;
      case 2:
        throw "text";
      case 3:
        throw std::string("string");
      default:
        throw Unknown();
    }
  });
  const Running running = Start();
  const std::vector<std::pair<absl::Duration, std::string>> expected = {
      {absl::Seconds(1), "panic: broken"},
      {absl::Seconds(5), "panic: int 42"},
      {absl::Seconds(30), "panic: text"},
      {absl::Minutes(2), "panic: string"},
      {absl::Minutes(2), "panic: an exception of unknown type"}};
  for (size_t i = 0; i < expected.size(); ++i) {
    const int runs = static_cast<int>(i) + 1;
    ASSERT_TRUE(AwaitReleased("a", runs));
    ASSERT_TRUE(clock_.AwaitDeadline(expected[i].first)) << "pause " << runs;
    EXPECT_EQ(Panics("a"), runs);
    EXPECT_EQ(State("a").last_error, expected[i].second);
    EXPECT_EQ(State("a").panics, runs);
    EXPECT_FALSE(State("a").leading);
    clock_.Advance(expected[i].first - absl::Milliseconds(1));
    EXPECT_EQ(Built("a"), runs) << "not before the pause is over";
    clock_.Advance(absl::Milliseconds(1));
  }
  ASSERT_TRUE(AwaitBuilt("a", 6));
  store_.With([&] {
    EXPECT_EQ(store_.terms["a"], 6);
    ASSERT_GE(store_.reports["a"].size(), 5u);
    const auto& report = store_.reports["a"][1];
    EXPECT_FALSE(report.ok);
    EXPECT_TRUE(report.restarted);
    EXPECT_EQ(report.error, "panic: int 42");
  });
}

TEST_F(SupervisorTest, AThrowWhileTheWorkerIsBuiltIsAPanic) {
  entries_.push_back(
      {.name = "a", .help = "", .tunables = {}, .make = [](const Dependencies&) -> std::unique_ptr<Worker> {
         throw 42;
       }});
  const Running running = Start();
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Seconds(1)));
  EXPECT_EQ(Panics("a"), 1);
  EXPECT_TRUE(AwaitReleased("a", 1));
}

TEST_F(SupervisorTest, AThrowOnAThreadOfTheWorkersOwnIsAPanicAndStopsTheRun) {
  AddWorker("a", [](RunContext& context) {
    std::jthread thread([&] { context.Guard([] { throw 42; }); });
    return Healthy(context);
  });
  const Running running = Start();
  ASSERT_TRUE(AwaitReleased("a", 1));
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Seconds(1)));
  EXPECT_EQ(Panics("a"), 1);
  EXPECT_EQ(State("a").last_error, "panic: int 42");
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(AwaitBuilt("a", 2));
}

TEST_F(SupervisorTest, FiveHealthyMinutesMakeThePauseShortAgain) {
  std::atomic<bool> quick = true;
  AddWorker("a", [&](RunContext& context) -> absl::Status {
    if (!quick) context.WaitFor(absl::Minutes(5));
    throw 42;
  });
  const Running running = Start();
  ASSERT_TRUE(AwaitReleased("a", 1));
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(1)));
  ASSERT_TRUE(AwaitReleased("a", 2));
  quick = false;
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(5)));
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Minutes(5)));
  // Renewals keep the lease meanwhile.
  for (int i = 1; i <= 142; ++i) {
    ASSERT_TRUE(clock_.StepTo(kThird));
    ASSERT_TRUE(store_.Await([&] { return store_.renewals["a"] == i; }));
  }
  ASSERT_TRUE(clock_.StepTo(absl::Minutes(5) - 142 * kThird));
  ASSERT_TRUE(AwaitReleased("a", 3));
  EXPECT_TRUE(clock_.AwaitDeadline(absl::Seconds(1)));
  EXPECT_EQ(Panics("a"), 3);
}

TEST_F(SupervisorTest, ACleanReturnReleasesAndBacksOff) {
  AddWorker("a", [](RunContext&) { return absl::OkStatus(); });
  const Running running = Start();
  ASSERT_TRUE(AwaitReleased("a", 1));
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(1)));
  ASSERT_TRUE(AwaitReleased("a", 2));
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Seconds(5)));
  EXPECT_EQ(Panics("a"), 0);
  EXPECT_EQ(State("a").restarts, 2);
  EXPECT_EQ(State("a").last_error, "returned");
}

TEST_F(SupervisorTest, AnErrorIsReportedReleasesAndBacksOff) {
  AddWorker("a", [](RunContext&) { return absl::InternalError("cannot"); });
  const Running running = Start();
  ASSERT_TRUE(AwaitReleased("a", 1));
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Seconds(1)));
  EXPECT_EQ(Panics("a"), 0);
  store_.With([&] {
    ASSERT_EQ(store_.reports["a"].size(), 1u);
    EXPECT_TRUE(store_.reports["a"][0].restarted);
    EXPECT_THAT(store_.reports["a"][0].error, HasSubstr("cannot"));
  });
}

TEST_F(SupervisorTest, ALostLeaseStopsTheRunAndRestartsAtOnceWithoutBackoffOrRelease) {
  AddWorker("a", Healthy);
  store_.With([&] { store_.renew = [] { return LeaderStore::TermOver(); }; });
  const Running running = Start();
  for (int terms = 1; terms <= 3; ++terms) {
    ASSERT_TRUE(AwaitBuilt("a", terms)) << "without the clock moving on";
    ASSERT_TRUE(clock_.StepTo(kThird)) << "to the renewal";
  }
  ASSERT_TRUE(AwaitBuilt("a", 4));
  EXPECT_EQ(Panics("a"), 0);
  EXPECT_EQ(State("a").restarts, 0);
  store_.With([&] {
    EXPECT_EQ(store_.releases["a"], 0) << "what is not held is not released";
    EXPECT_EQ(store_.terms["a"], 4);
  });
}

TEST_F(SupervisorTest, AWriteRefusedForItsTermIsALostLease) {
  std::atomic<int> run = 0;
  AddWorker("a", [&](RunContext& context) {
    if (run++ > 0) return Healthy(context);
    context.WaitFor(absl::Milliseconds(1500));
    return LeaderStore::TermOver();
  });
  const Running running = Start();
  ASSERT_TRUE(clock_.StepTo(absl::Milliseconds(1500)));
  EXPECT_TRUE(AwaitBuilt("a", 2));
  store_.With([&] { EXPECT_EQ(store_.releases["a"], 0); });
}

TEST_F(SupervisorTest, TermsThatAreLostAtOnceDoNotSpin) {
  AddWorker("a", [](RunContext&) { return LeaderStore::TermOver(); });
  const Running running = Start();
  ASSERT_TRUE(AwaitBuilt("a", 1));
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(1)));
  ASSERT_TRUE(AwaitBuilt("a", 2));
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Seconds(1)));
}

TEST_F(SupervisorTest, ARenewalThatHangsLosesTheLeaseInTime) {
  std::atomic<bool> answer = false;
  std::atomic<int> ended = 0;
  AddWorker("a", [&](RunContext& context) {
    const absl::Status status = Healthy(context);
    ++ended;
    ended.notify_all();
    return status;
  });
  store_.With([&] {
    store_.renew = [&] {
      answer.wait(false);
      return absl::OkStatus();
    };
  });
  const Running running = Start();
  ASSERT_TRUE(AwaitBuilt("a", 1));
  ASSERT_TRUE(clock_.StepTo(kThird));
  ASSERT_TRUE(store_.Await([&] { return store_.renewals["a"] == 1; }));
  EXPECT_EQ(Leads("a"), 1);
  // The rest of the lease, counted from when it was asked for.
  ASSERT_TRUE(clock_.StepTo(2 * kThird));
  ended.wait(0);  // Though the renewal still hangs.
  answer = true;
  answer.notify_all();
  EXPECT_TRUE(AwaitBuilt("a", 2)) << "a new term";
  EXPECT_EQ(Panics("a"), 0);
}

TEST_F(SupervisorTest, ARenewalThatFailsIsTriedAgainBeforeTheLeaseIsOver) {
  AddWorker("a", Healthy);
  std::atomic<int> tries = 0;
  store_.With([&] {
    store_.renew = [&]() -> absl::Status {
      if (++tries == 1) throw 42;
      if (tries <= 3) return absl::UnavailableError("away");
      return absl::OkStatus();
    };
  });
  const Running running = Start();
  ASSERT_TRUE(AwaitBuilt("a", 1));
  ASSERT_TRUE(clock_.StepTo(kThird));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(clock_.StepTo(kLease / 15));
  ASSERT_TRUE(store_.Await([&] { return store_.renewals["a"] == 4; }));
  ASSERT_TRUE(clock_.StepTo(kThird)) << "the usual rhythm again";
  EXPECT_EQ(Built("a"), 1);
  EXPECT_TRUE(State("a").leading);
}

TEST_F(SupervisorTest, StopEndsAPause) {
  AddWorker("a", [](RunContext&) -> absl::Status { throw 42; });
  const Running running = Start();
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(1)));
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Seconds(5)));
  EXPECT_EQ(Stop(), absl::OkStatus());
  EXPECT_EQ(Built("a"), 2);
}

TEST_F(SupervisorTest, StopNamesAWorkerThatDoesNotHeed) {
  std::atomic<bool> leave = false;
  AddWorker("deaf", [&](RunContext&) {
    leave.wait(false);
    return absl::OkStatus();
  });
  AddWorker("good", Healthy);
  const Running running = Start();
  ASSERT_TRUE(AwaitBuilt("deaf", 1));
  ASSERT_TRUE(AwaitBuilt("good", 1));
  absl::Status status;
  {
    std::jthread stopper([&] { status = supervisor_->Stop(clock_.Now() + std::chrono::milliseconds(1234)); });
    ASSERT_TRUE(AwaitReleased("good", 1));
    ASSERT_TRUE(clock_.StepTo(absl::Milliseconds(1234)));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("deaf"));
  leave = true;
  leave.notify_all();
  EXPECT_EQ(Stop(), absl::OkStatus());
}

TEST_F(SupervisorTest, SiblingsOfAPanickingWorkerAreUntouched) {
  std::atomic<int> rounds = 0;
  AddWorker("bad", [](RunContext&) -> absl::Status { throw 42; });
  AddWorker("good", [&](RunContext& context) {
    return RunRounds(context, [&]() -> absl::StatusOr<absl::Duration> {
      ++rounds;
      return absl::Milliseconds(700);
    });
  });
  const Running running = Start();
  ASSERT_TRUE(AwaitReleased("bad", 1));
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Seconds(1))) << "its pause has begun";
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(clock_.StepTo(absl::Milliseconds(700)));
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Milliseconds(700)));
  ASSERT_TRUE(AwaitReleased("bad", 2));
  EXPECT_EQ(rounds, 5);
  EXPECT_EQ(Built("good"), 1);
  EXPECT_EQ(Panics("good"), 0);
  EXPECT_EQ(State("good").term, 1);
  store_.With([&] { EXPECT_EQ(store_.releases["good"], 0); });
}

TEST_F(SupervisorTest, AWorkerWithLeasesOfItsOwnRunsWithoutTheOuterOne) {
  std::atomic<int64_t> term = -1;
  AddWorker(
      "sharded",
      [&](RunContext& context) {
        term = context.fence().term;
        return Healthy(context);
      },
      Leadership::kOwnLeases);
  const Running running = Start(0);
  ASSERT_TRUE(AwaitBuilt("sharded", 1));
  EXPECT_EQ(Stop(), absl::OkStatus());
  EXPECT_EQ(term, 0);
  store_.With([&] {
    EXPECT_EQ(store_.acquire_calls["sharded"], 0);
    EXPECT_EQ(store_.releases["sharded"], 0);
  });
}

TEST_F(SupervisorTest, AFailedRoundIsCountedReportedAndRepeatedAfterAPause) {
  lease_ = absl::Hours(1);  // Longer than what the test steps over without awaiting renewals.
  std::atomic<int> round = 0;
  AddWorker("a", [&](RunContext& context) {
    return RunRounds(context, [&]() -> absl::StatusOr<absl::Duration> {
      if (++round <= 4) return absl::UnavailableError("away");
      return absl::Minutes(1);
    });
  });
  const Running running = Start();
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Seconds(1)));
  EXPECT_THAT(State("a").last_error, HasSubstr("away"));
  clock_.Advance(absl::Seconds(1));
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(2)));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(clock_.StepTo(absl::Seconds(5)));
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Minutes(1)));
  EXPECT_EQ(State("a").last_error, "");
  EXPECT_EQ(State("a").runs, 5);
  EXPECT_EQ(Panics("a"), 0);
  EXPECT_EQ(metrics_.background_runs.Add({{"worker", "a"}, {"outcome", "error"}}).Value(), 4);
  EXPECT_EQ(metrics_.background_runs.Add({{"worker", "a"}, {"outcome", "ok"}}).Value(), 1);
  store_.With([&] {
    ASSERT_EQ(store_.reports["a"].size(), 5u);
    EXPECT_FALSE(store_.reports["a"][0].ok);
    EXPECT_FALSE(store_.reports["a"][0].restarted);
    EXPECT_TRUE(store_.reports["a"][4].ok);
  });
}

TEST_F(SupervisorTest, RoundsOfASecondAreReportedTogether) {
  AddWorker("a", [&](RunContext& context) {
    return RunRounds(context, []() -> absl::StatusOr<absl::Duration> { return absl::Milliseconds(10); });
  });
  const Running running = Start();
  for (int i = 0; i < 150; ++i) ASSERT_TRUE(clock_.StepTo(absl::Milliseconds(10)));
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Milliseconds(10)));
  EXPECT_EQ(Stop(), absl::OkStatus());
  store_.With([&] {
    ASSERT_EQ(store_.reports["a"].size(), 3u) << "the first at once, one after a second, the rest at the end";
    EXPECT_EQ(store_.reports["a"][0].runs, 1);
    EXPECT_EQ(store_.reports["a"][1].runs, 100);
    EXPECT_EQ(store_.reports["a"][2].runs, 50);
  });
}

TEST_F(SupervisorTest, WhatWasGatheredIsReportedWhileTheLoopSleeps) {
  std::atomic<int> rounds = 0;
  AddWorker("a", [&](RunContext& context) {
    return RunRounds(context, [&]() -> absl::StatusOr<absl::Duration> {
      return ++rounds < 5 ? absl::ZeroDuration() : absl::Hours(1);
    });
  });
  const Running running = Start();
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Hours(1)));
  ASSERT_TRUE(clock_.StepTo(kThird));
  ASSERT_TRUE(store_.Await([&] { return store_.reports["a"].size() == 2; }));
  store_.With([&] { EXPECT_EQ(store_.reports["a"][1].runs, 4); });
}

}  // namespace
}  // namespace tenure::background
