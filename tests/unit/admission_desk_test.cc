// When gates are looked at, and how many by one transaction. Layer: tests.
#include "server/engine/admission_desk.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/status.h"
#include "tests/support/manual_clock.h"
#include "tests/support/unimplemented_store.h"

namespace tenure::engine {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::ManualClock;
using ::testing::SizeIs;

constexpr int32_t kQueue = 7;
constexpr absl::Duration kLook = absl::Milliseconds(10), kRest = absl::Milliseconds(20);

// Each look takes kLook by the clock, and waits to be let go while looks are held.
class LookStore : public testing::UnimplementedStore {
 public:
  explicit LookStore(ManualClock& clock) : clock_(clock) {}

  absl::StatusOr<store::AdmitResult> Admit(int32_t, std::span<const std::string> names, int, int64_t) override {
    std::unique_lock<std::mutex> lock(mu_);
    looks_.emplace_back(names.begin(), names.end());
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_; });
    clock_.Advance(takes_);
    changed_.notify_all();
    if (fails_) return MakeError(absl::StatusCode::kUnavailable, "DATABASE_UNAVAILABLE", "scripted");
    store::AdmitResult result = std::exchange(next_, {});
    result.admitted = each_ * static_cast<int>(names.size());
    return result;
  }
  void Hold(bool held) {
    std::lock_guard<std::mutex> lock(mu_);
    held_ = held;
    changed_.notify_all();
  }
  void Answer(store::AdmitResult result) {
    std::lock_guard<std::mutex> lock(mu_);
    next_ = std::move(result);
  }
  // So many jobs pass each gate.
  void SetEach(int each) {
    std::lock_guard<std::mutex> lock(mu_);
    each_ = each;
  }
  void SetTakes(absl::Duration takes) {
    std::lock_guard<std::mutex> lock(mu_);
    takes_ = takes;
  }
  void SetFails(bool fails) {
    std::lock_guard<std::mutex> lock(mu_);
    fails_ = fails;
  }
  // The names of each look, once `count` have begun.
  std::vector<std::vector<std::string>> AwaitBegun(size_t count) {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [&] { return looks_.size() >= count; });
    return looks_;
  }
  std::vector<std::vector<std::string>> looks() { return AwaitBegun(0); }

 private:
  ManualClock& clock_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::vector<std::string>> looks_;
  store::AdmitResult next_;
  absl::Duration takes_ = kLook;
  int each_ = 0;
  bool held_ = false, fails_ = false;
};

class AdmissionDeskTest : public ::testing::Test {
 protected:
  ~AdmissionDeskTest() override {
    store_.Hold(false);
    desk_.Stop();
    timers_.Stop();
    executor_.Stop();
  }

  // One look, which is over: the queue knows how long its looks take.
  void LookOnce() {
    desk_.Look(kQueue, {"kfirst"});
    store_.AwaitBegun(1);
    AwaitIdle();
  }
  // The only executor thread has come to the end of what it was given.
  void AwaitIdle() {
    std::mutex mu;
    std::condition_variable cv;
    bool done = false;
    executor_.Post([&] {
      std::lock_guard<std::mutex> lock(mu);
      done = true;
      cv.notify_all();
    });
    std::unique_lock<std::mutex> lock(mu);
    cv.wait(lock, [&] { return done; });
  }

  static store::GateNames Names(int count) {
    store::GateNames names;
    for (int i = 0; i < count; ++i) names.push_back(absl::StrCat("k", i));
    return names;
  }

  ManualClock clock_;
  LookStore store_{clock_};
  Executor executor_{1};
  Timers timers_{clock_};
  Metrics metrics_;
  AdmissionDesk desk_{store_,
                      executor_,
                      timers_,
                      metrics_,
                      [](int32_t, const store::AdmitResult&) {},
                      [](const store::ResolveResult&) {}};
};

TEST_F(AdmissionDeskTest, NamesGatherWhileALookIsInFlight) {
  store_.Hold(true);
  desk_.Look(kQueue, {"ka"});
  store_.AwaitBegun(1);
  desk_.Look(kQueue, {"kb", "kc"});
  desk_.Look(kQueue, {"kc", "kb", "ka"});
  store_.Hold(false);
  EXPECT_THAT(store_.AwaitBegun(2), ElementsAre(ElementsAre("ka"), ElementsAre("kb", "kc", "ka")));
}

TEST_F(AdmissionDeskTest, AQueueOfWhichNothingIsLeftIsLookedAtAtOnce) {
  LookOnce();
  desk_.Look(kQueue, {"ka"});
  store_.AwaitBegun(2);
  AwaitIdle();
  desk_.Claimed(kQueue, /*more=*/false);
  desk_.Look(kQueue, {"kb"});
  EXPECT_THAT(store_.AwaitBegun(3), ElementsAre(ElementsAre("kfirst"), ElementsAre("ka"), ElementsAre("kb")));
}

TEST_F(AdmissionDeskTest, LooksRestTwiceTheirTimeWhileClaimsLeaveSomethingBehind) {
  LookOnce();
  desk_.Claimed(kQueue, /*more=*/true);
  desk_.Look(kQueue, {"ka"});
  desk_.Look(kQueue, {"kb"});
  ASSERT_TRUE(clock_.AwaitDeadline(kRest));
  AwaitIdle();
  EXPECT_THAT(store_.looks(), SizeIs(1));
  ASSERT_TRUE(clock_.StepTo(kRest));
  EXPECT_THAT(store_.AwaitBegun(2).back(), ElementsAre("ka", "kb"));
}

TEST_F(AdmissionDeskTest, AClaimThatLeavesNothingBehindEndsTheRest) {
  LookOnce();
  desk_.Claimed(kQueue, /*more=*/true);
  desk_.Look(kQueue, {"ka"});
  ASSERT_TRUE(clock_.AwaitDeadline(kRest));
  desk_.Claimed(kQueue, /*more=*/false);
  EXPECT_THAT(store_.AwaitBegun(2).back(), ElementsAre("ka"));
  AwaitIdle();
  // The timer of the rest that was ended finds nothing to do.
  clock_.Advance(kRest);
  desk_.Look(kQueue, {"kb"});
  EXPECT_THAT(store_.AwaitBegun(3).back(), ElementsAre("kb"));
}

TEST_F(AdmissionDeskTest, WithoutClaimsTheRestEnds) {
  LookOnce();
  desk_.Claimed(kQueue, /*more=*/true);
  clock_.Advance(absl::Milliseconds(100));
  store_.SetTakes(absl::Seconds(1));
  desk_.Look(kQueue, {"ka"});
  store_.AwaitBegun(2);
  AwaitIdle();
  desk_.Look(kQueue, {"kb"});
  EXPECT_THAT(store_.AwaitBegun(3).back(), ElementsAre("kb")) << "what was left behind a second ago may be gone";
}

TEST_F(AdmissionDeskTest, ARestIsATenthOfASecondAtMost) {
  store_.SetTakes(absl::Seconds(1));
  LookOnce();
  desk_.Claimed(kQueue, /*more=*/true);
  desk_.Look(kQueue, {"ka"});
  ASSERT_TRUE(clock_.StepTo(absl::Milliseconds(100)));
  EXPECT_THAT(store_.AwaitBegun(2).back(), ElementsAre("ka"));
}

TEST_F(AdmissionDeskTest, ARoundOfManyNamesIsManyShortTransactionsWithoutARest) {
  store_.SetEach(4);
  LookOnce();
  desk_.Claimed(kQueue, /*more=*/true);
  desk_.Look(kQueue, Names(600));
  ASSERT_TRUE(clock_.AwaitDeadline(kRest));
  store_.Hold(true);
  ASSERT_TRUE(clock_.StepTo(kRest));
  store_.AwaitBegun(2);
  desk_.Claimed(kQueue, /*more=*/true);
  store::AdmitResult result;
  result.again = {"k0"};
  store_.Answer(result);
  store_.Hold(false);
  const auto looks = store_.AwaitBegun(4);
  EXPECT_THAT(looks[1], SizeIs(250));
  EXPECT_THAT(looks[2], SizeIs(250));
  EXPECT_THAT(looks[3], SizeIs(100));
  // A gate that had more than one look takes is of the next round.
  ASSERT_TRUE(clock_.AwaitDeadline(2 * 3 * kLook));
  EXPECT_THAT(store_.looks(), SizeIs(4));
  desk_.Claimed(kQueue, /*more=*/false);
  EXPECT_THAT(store_.AwaitBegun(5).back(), ElementsAre("k0"));
}

TEST_F(AdmissionDeskTest, GatesThatLetOnePassEachAreManyInATransaction) {
  store_.SetEach(1);
  LookOnce();
  desk_.Look(kQueue, Names(1'500));
  const auto looks = store_.AwaitBegun(3);
  EXPECT_THAT(looks[1], SizeIs(1'000));
  EXPECT_THAT(looks[2], SizeIs(500));
}

TEST_F(AdmissionDeskTest, TurnsOfTenantsDoNotRest) {
  LookOnce();
  desk_.Claimed(kQueue, /*more=*/true);
  desk_.Took(kQueue, 5);
  EXPECT_THAT(store_.AwaitBegun(2).back(), ElementsAre("q"));
}

TEST_F(AdmissionDeskTest, ARateIsLookedAtInTime) {
  store::AdmitResult result;
  result.later = {{"ka", absl::Milliseconds(5)}};
  store_.Answer(result);
  LookOnce();
  desk_.Claimed(kQueue, /*more=*/true);
  ASSERT_TRUE(clock_.StepTo(absl::Milliseconds(5)));
  EXPECT_THAT(store_.AwaitBegun(2).back(), ElementsAre("ka"));
}

TEST_F(AdmissionDeskTest, ALookThatFailedIsRepeated) {
  store_.SetFails(true);
  desk_.Look(kQueue, {"ka"});
  store_.AwaitBegun(1);
  AwaitIdle();
  store_.SetFails(false);
  ASSERT_TRUE(clock_.StepTo(absl::Milliseconds(250)));
  EXPECT_THAT(store_.AwaitBegun(2), Each(ElementsAre("ka")));
}

}  // namespace
}  // namespace tenure::engine
