// When the promoter looks for due jobs, and from which cursor: on a scripted store and a clock that only the test
// moves. What the statement itself does is tested against PostgreSQL. Layer: tests.
#include <deque>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/background/promoter_signal.h"
#include "server/background/registry.h"
#include "server/base/status.h"
#include "tests/support/leader_store.h"
#include "tests/support/manual_clock.h"

namespace tenure::background {
namespace {

using ::testing::IsEmpty;
using testing::ManualClock;

const absl::Time kDatabaseStart = absl::FromUnixSeconds(1'800'000'000);
constexpr absl::Duration kMargin = absl::Seconds(2);
constexpr absl::Duration kFullScan = absl::Minutes(1);

// A database whose time goes with the clock, from another epoch.
class PromoterStore : public testing::LeaderStore {
 public:
  explicit PromoterStore(ManualClock& clock) : clock_(clock), start_(clock.Now()) {}

  absl::Time DatabaseNow() const { return kDatabaseStart + absl::FromChrono(clock_.Now() - start_); }

  absl::StatusOr<store::PromoteResult> Promote(const store::Fence&, absl::Time after, int limit) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls.push_back({after, limit});
    changed_.notify_all();
    if (on_call) on_call();
    if (!answers.empty()) {
      absl::StatusOr<store::PromoteResult> answer = answers.front();
      answers.pop_front();
      if (answer.ok()) Fill(*answer);
      return answer;
    }
    store::PromoteResult result;
    Fill(result);
    return result;
  }

  struct Call {
    absl::Time after;
    int limit;
  };
  std::vector<Call> calls;  // Use these inside Await and With only.
  std::deque<absl::StatusOr<store::PromoteResult>> answers;
  std::function<void()> on_call;

 private:
  // An answer that says nothing of its cursor has read everything.
  void Fill(store::PromoteResult& result) const {
    result.now = DatabaseNow();
    if (result.cursor == absl::InfinitePast()) result.cursor = result.now;
  }

  ManualClock& clock_;
  const Clock::TimePoint start_;
};

class NullListener : public RunContext::Listener {
 public:
  void OnRound(const absl::Status& status) override {
    if (!status.ok()) ++errors;
  }
  void OnPanic(std::string_view what) override { ADD_FAILURE() << what; }
  std::atomic<int> errors = 0;
};

class PromoterTest : public ::testing::Test {
 protected:
  ~PromoterTest() override {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }

  void Start() {
    Dependencies dependencies{.store = &store_,
                              .clock = &clock_,
                              .tunables = &tunables_,
                              .note_ready =
                                  [this](std::vector<store::ReadyRange> ranges) {
                                    const std::lock_guard<std::mutex> lock(ready_mutex_);
                                    ready_.insert(ready_.end(), ranges.begin(), ranges.end());
                                  },
                              .promoter_signal = &signal_};
    worker_ = SelectWorkers("promoter")->front().make(dependencies);
    thread_ = std::jthread([this](const std::stop_token& stop) {
      RunContext context({"promoter", 1}, stop, clock_, listener_);
      EXPECT_EQ(worker_->Run(context), absl::OkStatus());
    });
  }

  // So many statements were sent, in all.
  bool AwaitCalls(size_t count) {
    return store_.Await([&] { return store_.calls.size() >= count; });
  }
  size_t Calls() {
    size_t count = 0;
    store_.With([&] { count = store_.calls.size(); });
    return count;
  }
  absl::Time LastCursor() {
    absl::Time after;
    store_.With([&] { after = store_.calls.back().after; });
    return after;
  }
  void Answer(store::PromoteResult result) {
    store_.With([&] { store_.answers.push_back(std::move(result)); });
  }

  ManualClock clock_;
  PromoterStore store_{clock_};
  PromoterSignal signal_{clock_};
  Tunables tunables_ = DefaultTunables();
  NullListener listener_;
  std::mutex ready_mutex_;
  std::vector<store::ReadyRange> ready_;  // Guarded by ready_mutex_.
  std::unique_ptr<Worker> worker_;
  std::jthread thread_;
};

TEST_F(PromoterTest, ATermBeginsFromTheBeginningAndLooksAgainAfterAMinute) {
  Start();
  ASSERT_TRUE(AwaitCalls(1));
  EXPECT_EQ(LastCursor(), absl::InfinitePast());
  ASSERT_TRUE(clock_.StepTo(kFullScan));
  ASSERT_TRUE(AwaitCalls(2));
  EXPECT_EQ(LastCursor(), absl::InfinitePast());
}

TEST_F(PromoterTest, SleepsUntilTheNextDueTimeToTheMillisecond) {
  Answer({.next_due = absl::Milliseconds(1234)});
  Start();
  ASSERT_TRUE(AwaitCalls(1));
  const absl::Time first = store_.DatabaseNow();
  ASSERT_TRUE(clock_.StepTo(absl::Milliseconds(1234)));
  ASSERT_TRUE(AwaitCalls(2));
  EXPECT_EQ(LastCursor(), first) << "from where the last one ended";
}

TEST_F(PromoterTest, AnEarlierJobEndsTheSleepAndALaterOneDoesNot) {
  Answer({.next_due = absl::Seconds(10)});
  Start();
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Seconds(10)));
  signal_.Scheduled(absl::Seconds(20));
  signal_.Scheduled(absl::Milliseconds(50));
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Milliseconds(50)));
  EXPECT_EQ(Calls(), 1u) << "nothing is due yet, so nothing is asked";
  clock_.Advance(absl::Milliseconds(50));
  ASSERT_TRUE(AwaitCalls(2));
}

TEST_F(PromoterTest, AJobAnnouncedBehindTheCursorTakesItBack) {
  Start();
  ASSERT_TRUE(clock_.AwaitDeadline(kFullScan));
  clock_.Advance(absl::Seconds(20));
  // Its transaction took long: it was due 5 s ago, when the cursor stood before it; another look has passed it by.
  signal_.Scheduled(absl::ZeroDuration());
  ASSERT_TRUE(AwaitCalls(2));
  ASSERT_TRUE(clock_.AwaitDeadline(kFullScan - absl::Seconds(20)));
  const absl::Time cursor = store_.DatabaseNow();
  signal_.Scheduled(-absl::Seconds(5));
  ASSERT_TRUE(AwaitCalls(3));
  EXPECT_EQ(LastCursor(), cursor - absl::Seconds(5) - kMargin);
}

TEST_F(PromoterTest, AFutureJobLeavesTheCursorWhereItIs) {
  Start();
  ASSERT_TRUE(clock_.AwaitDeadline(kFullScan));
  const absl::Time cursor = store_.DatabaseNow();
  signal_.Scheduled(absl::Seconds(10));
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(10)));
  ASSERT_TRUE(AwaitCalls(2));
  EXPECT_EQ(LastCursor(), cursor);
}

TEST_F(PromoterTest, AnAnnouncementDuringAStatementIsNotLost) {
  store_.With([&] {
    store_.on_call = [this] {
      store_.on_call = nullptr;
      signal_.Scheduled(absl::ZeroDuration());
    };
  });
  Start();
  // The clock stands still, and the pause after a statement that found nothing is its shortest.
  ASSERT_TRUE(AwaitCalls(2));
  EXPECT_EQ(LastCursor(), store_.DatabaseNow() - kMargin);
}

TEST_F(PromoterTest, AFullBatchIsFollowedAtOnceFromItsCursor) {
  const absl::Time middle = kDatabaseStart - absl::Hours(1);
  Answer({.promoted = 1000, .ready = {{.queue = 3, .count = 1000}}, .more = true, .cursor = middle});
  Start();
  ASSERT_TRUE(AwaitCalls(2));
  EXPECT_EQ(LastCursor(), middle);
  const std::lock_guard<std::mutex> lock(ready_mutex_);
  ASSERT_EQ(ready_.size(), 1u);
  EXPECT_EQ(ready_[0].queue, 3);
}

TEST_F(PromoterTest, ARowThatWasPassedOverIsLookedAtAgainSoon) {
  const absl::Time locked = kDatabaseStart - absl::Seconds(1);
  Answer({.cursor = locked});
  Start();
  ASSERT_TRUE(clock_.StepTo(absl::Milliseconds(50)));
  ASSERT_TRUE(AwaitCalls(2));
  EXPECT_EQ(LastCursor(), locked);
  EXPECT_TRUE(clock_.AwaitDeadline(kFullScan - absl::Milliseconds(50))) << "gone: the usual sleep";
}

TEST_F(PromoterTest, AFailedStatementIsRepeatedFromTheSamePlace) {
  Start();
  ASSERT_TRUE(clock_.AwaitDeadline(kFullScan));
  clock_.Advance(absl::Seconds(10));
  store_.With([&] { store_.answers.push_back(absl::UnavailableError("away")); });
  const absl::Time expected = store_.DatabaseNow() - absl::Seconds(20) - kMargin;
  signal_.Scheduled(-absl::Seconds(20));
  ASSERT_TRUE(AwaitCalls(2));
  EXPECT_EQ(LastCursor(), expected);
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(1)));
  ASSERT_TRUE(AwaitCalls(3));
  EXPECT_EQ(LastCursor(), expected) << "what was announced is still to be found";
  EXPECT_EQ(listener_.errors, 1);
}

TEST_F(PromoterTest, AFullScanThatFailedIsRepeatedInFull) {
  store_.With([&] { store_.answers.push_back(absl::UnavailableError("away")); });
  Start();
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(1)));
  ASSERT_TRUE(AwaitCalls(2));
  EXPECT_EQ(LastCursor(), absl::InfinitePast());
}

TEST_F(PromoterTest, AnnouncementsOfAnySizeAreBearable) {
  Start();
  ASSERT_TRUE(clock_.AwaitDeadline(kFullScan));
  signal_.Scheduled(absl::InfiniteDuration());
  signal_.Scheduled(-absl::InfiniteDuration());
  ASSERT_TRUE(AwaitCalls(2));
  EXPECT_LT(LastCursor(), kDatabaseStart - absl::Hours(24 * 364));
}

}  // namespace
}  // namespace tenure::background
