// Functions that run at their times, on a clock that only the test moves. Layer: tests.
#include "server/engine/timers.h"

#include <future>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"

namespace tenure::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ManualClock;

class TimersTest : public ::testing::Test {
 protected:
  // What ran so far, once everything that is due has run: a timer that is due now runs after those before it.
  std::string Ran() {
    std::promise<void> all;
    timers_.At(clock_.Now(), [&] { all.set_value(); });
    all.get_future().wait();
    return ran_;
  }
  std::function<void()> Say(const std::string& what) {
    return [this, what] { ran_ += what; };
  }

  ManualClock clock_;
  std::string ran_;
  Timers timers_{clock_};
};

TEST_F(TimersTest, RunInTheOrderOfTheirTimesAndNotBefore) {
  timers_.After(seconds(2), Say("b"));
  timers_.After(seconds(1), Say("a"));
  timers_.After(seconds(3), Say("c"));
  EXPECT_EQ(Ran(), "");
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(1)));
  EXPECT_EQ(Ran(), "a");
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(1)));
  EXPECT_EQ(Ran(), "ab");
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(Ran(), "abc");
}

TEST_F(TimersTest, ThoseOfOneInstantRunAsTheyCame) {
  for (const char* name : {"a", "b", "c", "d"}) timers_.After(seconds(1), Say(name));
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Ran(), "abcd");
}

TEST_F(TimersTest, ATimeThatHasPassedRunsAtOnce) {
  timers_.At(clock_.Now() - seconds(5), Say("late"));
  EXPECT_EQ(Ran(), "late");
}

// The thread waits for the first of all, also for one that came later and is due sooner.
TEST_F(TimersTest, AnEarlierOneIsNotHeldUpByALaterOne) {
  timers_.After(seconds(60), Say("later"));
  ASSERT_TRUE(clock_.AwaitDeadline(absl::Seconds(60)));
  timers_.After(milliseconds(10), Say("sooner"));
  ASSERT_TRUE(clock_.StepTo(absl::Milliseconds(10)));
  EXPECT_EQ(Ran(), "sooner");
}

TEST_F(TimersTest, ACancelledOneDoesNotRunAndLetsGoOfWhatItOwns) {
  auto owned = std::make_shared<int>(1);
  const Timers::Id id = timers_.After(seconds(1), [this, owned] { ran_ += "cancelled"; });
  timers_.After(seconds(1), Say("kept"));
  timers_.Cancel(id);
  EXPECT_EQ(owned.use_count(), 1);
  timers_.Cancel(id);
  timers_.Cancel(0);
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(Ran(), "kept");
}

TEST_F(TimersTest, AFunctionMaySetAndCancelOthers) {
  Timers::Id other = timers_.After(seconds(2), Say("never"));
  timers_.After(seconds(1), [&] {
    timers_.Cancel(other);
    timers_.After(seconds(1), Say("next"));
  });
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Ran(), "");
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Ran(), "next");
}

TEST_F(TimersTest, AfterStopNothingRunsAndNothingIsHeld) {
  auto owned = std::make_shared<int>(1);
  timers_.After(seconds(1), [this, owned] { ran_ += "x"; });
  timers_.Stop();
  EXPECT_EQ(owned.use_count(), 1);
  EXPECT_EQ(timers_.After(seconds(1), [this, owned] { ran_ += "y"; }), 0u);
  EXPECT_EQ(owned.use_count(), 1);
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(ran_, "");
}

}  // namespace
}  // namespace tenure::engine
