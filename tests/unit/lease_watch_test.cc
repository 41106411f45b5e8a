// When the leases that this replica granted are looked at. Layer: tests.
#include "server/engine/lease_watch.h"

#include <set>

#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"

namespace tenure::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using store::LeaseRef;
using testing::ManualClock;

// An end is noticed within two ticks.
constexpr absl::Duration kLate = absl::Milliseconds(200);

class LeaseWatchTest : public ::testing::Test {
 protected:
  std::set<int64_t> Due() {
    std::set<int64_t> ids;
    for (const auto& [queue, leases] : watch_.TakeDue()) {
      for (const LeaseRef& lease : leases) {
        EXPECT_EQ(lease.queue, queue);
        ids.insert(lease.id);
      }
    }
    return ids;
  }

  ManualClock clock_;
  LeaseWatch watch_{clock_};
};

TEST_F(LeaseWatchTest, ALeaseIsDueSoonAfterItsEndAndNotBefore) {
  watch_.Add({1, 7, 1}, clock_.Now() + seconds(2));
  watch_.Add({2, 8, 1}, clock_.Now() + seconds(4));
  clock_.Advance(absl::Milliseconds(1999));
  EXPECT_TRUE(Due().empty());
  clock_.Advance(absl::Milliseconds(1) + kLate);
  EXPECT_EQ(Due(), std::set<int64_t>{7});
  EXPECT_TRUE(Due().empty()) << "taken twice";
  EXPECT_FALSE(watch_.Knows(7, 1));
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(Due(), std::set<int64_t>{8});
  EXPECT_EQ(watch_.size(), 0u);
}

TEST_F(LeaseWatchTest, AnExtendedLeaseIsPutOff) {
  watch_.Add({1, 7, 1}, clock_.Now() + seconds(2));
  clock_.Advance(absl::Seconds(1));
  watch_.Extend({1, 7, 1}, clock_.Now() + seconds(5));
  clock_.Advance(absl::Seconds(4));
  EXPECT_TRUE(Due().empty());
  clock_.Advance(absl::Seconds(1) + kLate);
  EXPECT_EQ(Due(), std::set<int64_t>{7});
}

TEST_F(LeaseWatchTest, AnExtendNeverShortensAndNeverTouchesAnotherLease) {
  watch_.Add({1, 7, 3}, clock_.Now() + seconds(5));
  watch_.Extend({1, 7, 3}, clock_.Now() + seconds(1));
  watch_.Extend({1, 7, 1}, clock_.Now() + minutes(5));
  watch_.Extend({1, 9, 1}, clock_.Now() + seconds(1));
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(Due().empty());
  clock_.Advance(absl::Seconds(3) + kLate);
  EXPECT_EQ(Due(), std::set<int64_t>{7});
  EXPECT_EQ(watch_.size(), 0u);
}

TEST_F(LeaseWatchTest, ASettledLeaseIsForgottenByItsNumber) {
  watch_.Add({1, 7, 1}, clock_.Now() + seconds(1));
  watch_.Forget(7, 3);
  EXPECT_TRUE(watch_.Knows(7, 1));
  watch_.Forget(7, 1);
  EXPECT_FALSE(watch_.Knows(7, 1));
  clock_.Advance(absl::Minutes(1));
  EXPECT_TRUE(Due().empty());
}

TEST_F(LeaseWatchTest, TheNextLeaseOfAJobIsNotEndedByTheLast) {
  watch_.Add({1, 7, 1}, clock_.Now() + seconds(1));
  watch_.Add({1, 7, 3}, clock_.Now() + seconds(10));
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(Due().empty());
  clock_.Advance(absl::Seconds(8) + kLate);
  EXPECT_EQ(Due(), std::set<int64_t>{7});
}

TEST_F(LeaseWatchTest, WhatStillStandsIsPutBack) {
  watch_.Add({1, 7, 1}, clock_.Now() + seconds(1));
  clock_.Advance(absl::Seconds(1) + kLate);
  EXPECT_EQ(Due(), std::set<int64_t>{7});
  watch_.Add({1, 7, 1}, clock_.Now() + milliseconds(500));
  EXPECT_TRUE(Due().empty());
  clock_.Advance(absl::Milliseconds(500) + kLate);
  EXPECT_EQ(Due(), std::set<int64_t>{7});
}

TEST_F(LeaseWatchTest, ALongLeaseIsDueAtItsEnd) {
  watch_.Add({1, 7, 1}, clock_.Now() + std::chrono::hours(12));
  for (int hour = 0; hour < 12; ++hour) {
    EXPECT_TRUE(Due().empty()) << hour;
    clock_.Advance(absl::Hours(1));
  }
  clock_.Advance(kLate);
  EXPECT_EQ(Due(), std::set<int64_t>{7});
}

// The watch is as large as what is held, not as what was ever granted for hours.
TEST_F(LeaseWatchTest, SettledLongLeasesLeaveNothingBehind) {
  for (int i = 1; i <= 10'000; ++i) {
    watch_.Add({1, i, 1}, clock_.Now() + std::chrono::hours(12));
    watch_.Forget(i, 1);
  }
  watch_.Add({1, 20'000, 1}, clock_.Now() + std::chrono::hours(12));
  clock_.Advance(absl::Minutes(2));
  EXPECT_TRUE(Due().empty());
  EXPECT_EQ(watch_.size(), 1u);
  EXPECT_EQ(watch_.entries(), 1u);
}

}  // namespace
}  // namespace tenure::engine
