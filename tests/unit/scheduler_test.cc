// What the scheduler asks of the store, and when: on a scripted store and a clock that only the test moves. What the
// statements do is tested against PostgreSQL. Layer: tests.
#include <deque>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/background/registry.h"
#include "server/base/status.h"
#include "tests/support/leader_store.h"
#include "tests/support/manual_clock.h"

namespace tenure::background {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ManualClock;
using ::testing::SizeIs;

const absl::Time kStart = absl::FromUnixSeconds(1'800'014'400);  // A full hour.
constexpr absl::Duration kPoll = absl::Milliseconds(500);

class ScheduleStore : public testing::LeaderStore {
 public:
  explicit ScheduleStore(ManualClock& clock) : clock_(clock), start_(clock.Now()) {}

  absl::Time DatabaseNow() const { return kStart + absl::FromChrono(clock_.Now() - start_); }

  absl::StatusOr<store::DueSchedules> ListDueSchedules(int, std::span<const int64_t> except) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    looks.emplace_back(except.begin(), except.end());
    changed_.notify_all();
    store::DueSchedules answer;
    if (!due.empty()) {
      answer = due.front();
      due.pop_front();
    }
    answer.now = DatabaseNow();
    return answer;
  }
  absl::StatusOr<store::FireResult> FireSchedules(const store::Fence&,
                                                  std::span<const store::Firing> firings) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    fired.emplace_back(firings.begin(), firings.end());
    changed_.notify_all();
    if (over) return TermOver();
    store::FireResult result;
    result.ready = {{.queue = 3, .count = 1}};
    result.busy = std::exchange(busy, {});
    return result;
  }
  absl::StatusOr<int> PruneScheduleRuns(const store::Fence&, absl::Duration age, int) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    pruned.push_back(age);
    changed_.notify_all();
    return 0;
  }

  // Use these inside Await and With only.
  std::deque<store::DueSchedules> due;
  std::vector<std::vector<int64_t>> looks;
  std::vector<std::vector<store::Firing>> fired;
  std::vector<absl::Duration> pruned;
  std::vector<int64_t> busy;
  bool over = false;

 private:
  ManualClock& clock_;
  const Clock::TimePoint start_;
};

class Listener : public RunContext::Listener {
 public:
  void OnRound(const absl::Status& status) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok()) errors_ += std::string(status.message()) + "\n";
  }
  void OnPanic(std::string_view what) override { ADD_FAILURE() << what; }
  std::string errors() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return errors_;
  }

 private:
  std::mutex mutex_;
  std::string errors_;
};

store::DueSchedule Schedule(int64_t id, const char* cron, absl::Time next,
                            store::Overlap overlap = store::Overlap::kAllow) {
  store::DueSchedule schedule;
  schedule.id = id;
  schedule.version = 10 + id;
  schedule.name = absl::StrCat("s", id);
  schedule.timing.cron = cron;
  schedule.next = next;
  schedule.overlap = overlap;
  return schedule;
}

class SchedulerTest : public ::testing::Test {
 protected:
  ~SchedulerTest() override {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }

  void Start() {
    Dependencies dependencies{.store = &store_,
                              .clock = &clock_,
                              .tunables = &tunables_,
                              .note_ready = [this](const std::vector<store::ReadyRange>&) { ++noted_; }};
    worker_ = SelectWorkers("scheduler")->front().make(dependencies);
    thread_ = std::jthread([this](const std::stop_token& stop) {
      RunContext context({"scheduler", 1}, stop, clock_, listener_);
      ended_ = worker_->Run(context);
    });
  }
  bool AwaitLooks(size_t count) {
    return store_.Await([&] { return store_.looks.size() >= count; });
  }

  ManualClock clock_;
  ScheduleStore store_{clock_};
  Tunables tunables_ = DefaultTunables();
  Listener listener_;
  std::atomic<int> noted_ = 0;
  absl::Status ended_;
  std::unique_ptr<Worker> worker_;
  std::jthread thread_;
};

TEST_F(SchedulerTest, LooksAgainAfterThePollInterval) {
  Start();
  ASSERT_TRUE(clock_.StepTo(kPoll));
  ASSERT_TRUE(AwaitLooks(2));
  EXPECT_TRUE(clock_.AwaitDeadline(kPoll));
}

TEST_F(SchedulerTest, SleepsNoLongerThanUntilTheNextSlot) {
  store_.due.push_back({.next_due = absl::Milliseconds(123)});
  Start();
  ASSERT_TRUE(clock_.StepTo(absl::Milliseconds(123)));
  EXPECT_TRUE(AwaitLooks(2));
}

TEST_F(SchedulerTest, FiresWhatIsDueInOneCallAndSaysSo) {
  store_.due.push_back({{Schedule(1, "0 * * * *", kStart), Schedule(2, "*/5 * * * *", kStart - absl::Minutes(5))}});
  Start();
  ASSERT_TRUE(AwaitLooks(1));
  ASSERT_TRUE(clock_.AwaitDeadline(kPoll));
  store_.With([&] {
    ASSERT_THAT(store_.fired, SizeIs(1));
    const std::vector<store::Firing>& firings = store_.fired[0];
    ASSERT_THAT(firings, SizeIs(2));
    EXPECT_EQ(firings[0].id, 1);
    EXPECT_EQ(firings[0].version, 11);
    EXPECT_EQ(firings[0].was, kStart);
    EXPECT_THAT(firings[0].slots, ElementsAre(kStart));
    EXPECT_EQ(firings[0].next, kStart + absl::Hours(1));
    EXPECT_THAT(firings[1].slots, ElementsAre(kStart)) << "five minutes late: missed, and beyond the cap of one";
    EXPECT_EQ(firings[1].missed, 1);
  });
  EXPECT_EQ(noted_, 1);
}

TEST_F(SchedulerTest, WhatCancelsTheJobBeforeFiresAlone) {
  store_.due.push_back(
      {{Schedule(1, "0 * * * *", kStart, store::Overlap::kCancelPrevious), Schedule(2, "0 * * * *", kStart),
        Schedule(3, "0 * * * *", kStart, store::Overlap::kCancelPrevious)}});
  Start();
  ASSERT_TRUE(clock_.AwaitDeadline(kPoll));
  store_.With([&] {
    ASSERT_THAT(store_.fired, SizeIs(3));
    for (const auto& [call, id] : {std::pair<size_t, int64_t>{0, 2}, {1, 1}, {2, 3}}) {
      ASSERT_THAT(store_.fired[call], SizeIs(1));
      EXPECT_EQ(store_.fired[call][0].id, id);
    }
  });
}

TEST_F(SchedulerTest, ABusyScheduleIsLeftAloneForAMoment) {
  store_.busy = {1};
  store_.due.push_back({{Schedule(1, "0 * * * *", kStart)}});
  Start();
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Milliseconds(100)));
  clock_.Advance(absl::Milliseconds(100));
  ASSERT_TRUE(AwaitLooks(2));
  store_.With([&] { EXPECT_THAT(store_.looks[1], IsEmpty()) << "its moment is over"; });
  EXPECT_EQ(listener_.errors(), "");
}

TEST_F(SchedulerTest, AnUnsoundScheduleIsReportedAndHoldsUpNobody) {
  store::DueSchedule unsound = Schedule(1, "0 * * * *", kStart);
  unsound.timing.time_zone = "Gone/Zone";
  store_.due.push_back({{unsound, Schedule(2, "0 * * * *", kStart)}});
  Start();
  ASSERT_TRUE(clock_.AwaitDeadline(kPoll));
  EXPECT_THAT(listener_.errors(), HasSubstr("the schedule \"s1\" cannot fire: time_zone: 'Gone/Zone'"));
  store_.With([&] {
    ASSERT_THAT(store_.fired, SizeIs(1));
    ASSERT_THAT(store_.fired[0], SizeIs(1));
    EXPECT_EQ(store_.fired[0][0].id, 2);
  });
  clock_.Advance(kPoll);
  ASSERT_TRUE(AwaitLooks(2));
  store_.With([&] { EXPECT_THAT(store_.looks[1], ElementsAre(1)); });
}

TEST_F(SchedulerTest, ATermThatIsOverEndsTheRun) {
  store_.over = true;
  store_.due.push_back({{Schedule(1, "0 * * * *", kStart)}});
  Start();
  thread_.join();
  EXPECT_TRUE(IsTermOver(ended_)) << ended_;
}

TEST_F(SchedulerTest, RunsArePrunedAtTheStartOfATermAndEachMinute) {
  Start();
  ASSERT_TRUE(clock_.AwaitDeadline(kPoll));
  store_.With([&] { EXPECT_THAT(store_.pruned, ElementsAre(absl::Hours(24 * 7))); });
  clock_.Advance(absl::Minutes(1));
  EXPECT_TRUE(store_.Await([&] { return store_.pruned.size() == 2; }));
}

}  // namespace
}  // namespace tenure::background
