// Which slots a schedule has, and which of those that have passed still run. Layer: tests.
#include "server/store/schedule_timing.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/status.h"

namespace tenure::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kNoon = absl::FromUnixSeconds(1'800'014'400);  // 2027-01-15T12:00:00Z
constexpr absl::Duration kOnTime = absl::Minutes(1);

Timing Every(absl::Duration interval, absl::Time anchor = kNoon) {
  return *Timing::Make({.interval = interval, .anchor = anchor});
}
Timing Cron(const char* text, const char* zone = "UTC") { return *Timing::Make({.cron = text, .time_zone = zone}); }

std::string RuleOf(const ScheduleTiming& timing) {
  return std::string(Timing::Make(timing, "spec.").status().message());
}

TEST(ScheduleTimingTest, ErrorsNameTheField) {
  EXPECT_THAT(RuleOf({}), HasSubstr("spec.cron: give exactly one of cron and interval"));
  EXPECT_THAT(RuleOf({.cron = "@daily", .interval = absl::Hours(1)}), HasSubstr("give exactly one"));
  EXPECT_THAT(RuleOf({.interval = absl::Milliseconds(999)}), HasSubstr("spec.interval: is 999ms; it must be from 1s"));
  EXPECT_THAT(RuleOf({.interval = absl::Hours(24 * 366 + 1)}), HasSubstr("spec.interval: "));
  EXPECT_THAT(RuleOf({.cron = "x"}), HasSubstr("spec.cron: has 1 fields"));
  EXPECT_THAT(RuleOf({.cron = "@daily", .time_zone = "Nowhere"}), HasSubstr("spec.time_zone: 'Nowhere'"));
  EXPECT_EQ(DetailsOf(Timing::Make({.cron = "x"}, "spec.").status()).metadata["field"], "spec.cron");
}

TEST(ScheduleTimingTest, AnIntervalCountsFromItsAnchor) {
  const Timing timing = Every(absl::Minutes(10));
  EXPECT_EQ(timing.Next(kNoon), kNoon + absl::Minutes(10));
  EXPECT_EQ(timing.Next(kNoon - absl::Hours(5)), kNoon + absl::Minutes(10)) << "no slot at or before the anchor";
  EXPECT_EQ(timing.Next(kNoon + absl::Minutes(10) - absl::Microseconds(1)), kNoon + absl::Minutes(10));
  EXPECT_EQ(timing.Next(kNoon + absl::Minutes(10)), kNoon + absl::Minutes(20));
  EXPECT_EQ(timing.Next(absl::InfiniteFuture()), std::nullopt);
}

TEST(ScheduleTimingTest, TheSlotThatHasJustComeRuns) {
  const Timing::Plan plan = Cron("0 12 * * *").Due(kNoon, kNoon + absl::Milliseconds(3), kOnTime, 0, Overlap::kAllow);
  EXPECT_THAT(plan.run, ElementsAre(kNoon));
  EXPECT_EQ(plan.missed, 0);
  EXPECT_EQ(plan.next, kNoon + absl::Hours(24));
}

TEST(ScheduleTimingTest, OfMissedSlotsTheLastRunUpToTheCap) {
  const Timing hourly = Cron("0 * * * *");
  const absl::Time first = kNoon - absl::Hours(4), now = kNoon + absl::Minutes(30);
  Timing::Plan plan = hourly.Due(first, now, kOnTime, 1, Overlap::kAllow);
  EXPECT_THAT(plan.run, ElementsAre(kNoon));
  EXPECT_EQ(plan.missed, 4);
  EXPECT_EQ(plan.next, kNoon + absl::Hours(1));
  plan = hourly.Due(first, now, kOnTime, 3, Overlap::kAllow);
  EXPECT_THAT(plan.run, ElementsAre(kNoon - absl::Hours(2), kNoon - absl::Hours(1), kNoon));
  EXPECT_EQ(plan.missed, 2);
  plan = hourly.Due(first, now, kOnTime, 100, Overlap::kAllow);
  EXPECT_THAT(plan.run, SizeIs(5));
  EXPECT_EQ(plan.missed, 0);
  plan = hourly.Due(first, now, kOnTime, 0, Overlap::kAllow);
  EXPECT_THAT(plan.run, IsEmpty());
  EXPECT_EQ(plan.missed, 5);
}

TEST(ScheduleTimingTest, ASlotThatIsOnTimeRunsWhateverTheCap) {
  // Back at 12:00:20: noon is on time, the others were missed.
  const Timing hourly = Cron("0 * * * *");
  const absl::Time first = kNoon - absl::Hours(4), now = kNoon + absl::Seconds(20);
  Timing::Plan plan = hourly.Due(first, now, kOnTime, 0, Overlap::kAllow);
  EXPECT_THAT(plan.run, ElementsAre(kNoon));
  plan = hourly.Due(first, now, kOnTime, 1, Overlap::kAllow);
  EXPECT_THAT(plan.run, ElementsAre(kNoon)) << "the last one, not one more";
  plan = hourly.Due(first, now, kOnTime, 2, Overlap::kAllow);
  EXPECT_THAT(plan.run, ElementsAre(kNoon - absl::Hours(1), kNoon));
  // A takeover of some seconds loses no slot of a quick schedule.
  plan = Every(absl::Seconds(1), kNoon)
             .Due(kNoon + absl::Seconds(1), kNoon + absl::Seconds(9), kOnTime, 0, Overlap::kAllow);
  EXPECT_THAT(plan.run, SizeIs(9));
  EXPECT_EQ(plan.missed, 0);
}

TEST(ScheduleTimingTest, UnderAnOverlapPolicyTheLastSlotRuns) {
  for (const Overlap overlap : {Overlap::kSkip, Overlap::kCancelPrevious}) {
    const Timing::Plan plan =
        Cron("0 * * * *").Due(kNoon - absl::Hours(2), kNoon + absl::Seconds(5), kOnTime, 100, overlap);
    EXPECT_THAT(plan.run, ElementsAre(kNoon));
    EXPECT_EQ(plan.missed, 2);
  }
}

TEST(ScheduleTimingTest, LongDowntimesAreCountedWithoutLongWork) {
  // A year of seconds, by arithmetic.
  const absl::Time now = kNoon + absl::Hours(24 * 365);
  Timing::Plan plan =
      Every(absl::Seconds(1)).Due(kNoon + absl::Seconds(1), now, absl::ZeroDuration(), 2, Overlap::kAllow);
  EXPECT_THAT(plan.run, ElementsAre(now - absl::Seconds(1), now));
  EXPECT_EQ(plan.missed, 365 * 86'400 - 2);
  EXPECT_EQ(plan.next, now + absl::Seconds(1));
  // A year of minutes: no longer counted exactly, but the last ones are right.
  plan = Cron("* * * * *", "Europe/Berlin").Due(kNoon, now, absl::ZeroDuration(), 2, Overlap::kAllow);
  EXPECT_THAT(plan.run, ElementsAre(now - absl::Minutes(1), now));
  EXPECT_GE(plan.missed, 100'000 - 2);
  EXPECT_EQ(plan.next, now + absl::Minutes(1));
}

// However one goes there, in steps or at once, every slot is either run or counted, and none twice.
TEST(ScheduleTimingTest, StepsAndLeapsMeetTheSameSlots) {
  std::mt19937 random(7);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 300; ++round) {
    const Timing timing = round % 2 == 0 ? Every(absl::Seconds(pick(1, 5000)))
                                         : Cron(round % 3 == 0 ? "*/7 1-3 * * *" : "*/5 * * * *", "Europe/Berlin");
    const absl::Time first = *timing.Next(kNoon + absl::Hours(24 * pick(0, 300)));
    const absl::Time end = first + absl::Minutes(pick(0, 5000));
    const Timing::Plan leap = timing.Due(first, end, absl::ZeroDuration(), 0, Overlap::kAllow);
    int64_t met = 0;
    absl::Time next = first;
    for (absl::Time now = first; now <= end;) {
      const Timing::Plan step = timing.Due(next, now, absl::Hours(1), 1, Overlap::kAllow);
      ASSERT_GT(step.next, now);
      met += static_cast<int64_t>(step.run.size()) + step.missed;
      next = step.next;
      now = std::max(now + absl::Minutes(pick(1, 700)), next);
      if (now > end && next <= end) now = end;
    }
    ASSERT_EQ(met, static_cast<int64_t>(leap.run.size()) + leap.missed) << round;
    ASSERT_EQ(next, leap.next);
  }
}

}  // namespace
}  // namespace tenure::store
