// When the leases that this replica granted are looked at. Layer: tests.
#include "server/engine/lease_watch.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"

namespace tenure::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using store::LeaseRef;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::ManualClock;

// An end is noticed within two ticks.
constexpr absl::Duration kLate = absl::Milliseconds(200);

class LeaseWatchTest : public ::testing::Test {
 protected:
  std::set<int64_t> Due() {
    std::set<int64_t> ids;
    for (const auto& [queue, leases] : watch_.TakeDue(&held_)) {
      for (const LeaseRef& lease : leases) {
        EXPECT_EQ(lease.queue, queue);
        ids.insert(lease.id);
      }
    }
    return ids;
  }

  // Of a claim that cannot be repeated.
  void Grant(const LeaseRef& lease, Clock::TimePoint ends) {
    LeaseRef granted = lease;
    granted.grant = ++grants_;
    watch_.AddGrant(grants_, clock_.Now(), {{granted, ends}});
  }

  std::map<int32_t, std::vector<LeaseRef>> held_;  // Looked at before their ends.
  int64_t grants_ = 0;
  ManualClock clock_;
  LeaseWatch watch_{clock_};
};

TEST_F(LeaseWatchTest, ALeaseIsDueSoonAfterItsEndAndNotBefore) {
  Grant({1, 7, 1}, clock_.Now() + seconds(2));
  Grant({2, 8, 1}, clock_.Now() + seconds(4));
  clock_.Advance(absl::Milliseconds(1999));
  EXPECT_TRUE(Due().empty());
  clock_.Advance(absl::Milliseconds(1) + kLate);
  EXPECT_EQ(Due(), std::set<int64_t>{7});
  EXPECT_TRUE(Due().empty()) << "taken twice";
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(Due(), std::set<int64_t>{8});
  EXPECT_EQ(watch_.size(), 0u);
}

TEST_F(LeaseWatchTest, AnExtendedLeaseIsPutOff) {
  Grant({1, 7, 1}, clock_.Now() + seconds(2));
  clock_.Advance(absl::Seconds(1));
  watch_.Extend({1, 7, 1}, clock_.Now() + seconds(5));
  clock_.Advance(absl::Seconds(4));
  EXPECT_TRUE(Due().empty());
  clock_.Advance(absl::Seconds(1) + kLate);
  EXPECT_EQ(Due(), std::set<int64_t>{7});
}

TEST_F(LeaseWatchTest, AnExtendNeverShortensAndNeverTouchesAnotherLease) {
  Grant({1, 7, 3}, clock_.Now() + seconds(5));
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
  Grant({1, 7, 1}, clock_.Now() + seconds(1));
  watch_.Forget(7, 3);
  EXPECT_EQ(watch_.size(), 1u);
  watch_.Forget(7, 1);
  EXPECT_EQ(watch_.size(), 0u);
  clock_.Advance(absl::Minutes(1));
  EXPECT_TRUE(Due().empty());
}

TEST_F(LeaseWatchTest, TheNextLeaseOfAJobIsNotEndedByTheLast) {
  Grant({1, 7, 1}, clock_.Now() + seconds(1));
  Grant({1, 7, 3}, clock_.Now() + seconds(10));
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(Due().empty());
  clock_.Advance(absl::Seconds(8) + kLate);
  EXPECT_EQ(Due(), std::set<int64_t>{7});
}

TEST_F(LeaseWatchTest, WhatStillStandsIsPutBack) {
  Grant({1, 7, 1}, clock_.Now() + seconds(1));
  clock_.Advance(absl::Seconds(1) + kLate);
  EXPECT_EQ(Due(), std::set<int64_t>{7});
  watch_.PutBack({1, 7, 1, 1}, clock_.Now() + milliseconds(500));
  EXPECT_TRUE(Due().empty());
  clock_.Advance(absl::Milliseconds(500) + kLate);
  EXPECT_EQ(Due(), std::set<int64_t>{7});
  EXPECT_THAT(watch_.TakeOver(), IsEmpty()) << "it may still be put back";
  watch_.Drop({1, 7, 1, 1});
  EXPECT_THAT(watch_.TakeOver(), ElementsAre(1));
  EXPECT_THAT(watch_.TakeOver(), IsEmpty()) << "taken twice";
}

TEST_F(LeaseWatchTest, AGrantIsOverWhenItsLastLeaseIsAndItsClaimCannotBeRepeated) {
  const auto ends = clock_.Now() + seconds(10);
  watch_.AddGrant(5, ends, {{{1, 7, 1, 5}, ends}, {{1, 8, 1, 5}, ends}});
  watch_.AddGrant(6, clock_.Now(), {{{1, 9, 1, 6}, ends}});
  watch_.Forget(7, 1);
  watch_.Forget(9, 2);
  EXPECT_THAT(watch_.TakeOver(), IsEmpty());
  watch_.Forget(9, 1);
  EXPECT_THAT(watch_.TakeOver(), ElementsAre(6));
  watch_.Forget(8, 1);
  watch_.Forget(8, 1);
  EXPECT_THAT(watch_.TakeOver(), IsEmpty()) << "a repeat may come";
  EXPECT_THAT(watch_.grants(), ElementsAre(5));
  clock_.Advance(absl::Seconds(10));
  EXPECT_THAT(watch_.TakeOver(), ElementsAre(5));
  EXPECT_THAT(watch_.grants(), IsEmpty());
}

// A job that was released and claimed again: the first grant is over, the second is not.
TEST_F(LeaseWatchTest, ANewerLeaseEndsTheOlderOnesGrant) {
  Grant({1, 7, 1}, clock_.Now() + seconds(10));
  Grant({1, 7, 3}, clock_.Now() + seconds(10));
  EXPECT_THAT(watch_.TakeOver(), ElementsAre(1));
  watch_.PutBack({1, 7, 1, 1}, clock_.Now() + seconds(1));
  watch_.Forget(7, 3);
  EXPECT_THAT(watch_.TakeOver(), ElementsAre(2));
}

// What is read from the database may be older than what was granted since.
TEST_F(LeaseWatchTest, AnOlderGrantThatIsFoundLateDoesNotHideANewerLease) {
  watch_.AddGrant(107, clock_.Now(), {{{1, 42, 7, 107}, clock_.Now() + seconds(1)}});
  watch_.AddGrant(105, clock_.Now(), {{{1, 42, 5, 105}, clock_.Now() + seconds(1)}});
  EXPECT_THAT(watch_.TakeOver(), ElementsAre(105));
  clock_.Advance(absl::Seconds(1) + kLate);
  const auto due = watch_.TakeDue(&held_);
  ASSERT_EQ(due.at(1).size(), 1u);
  EXPECT_EQ(due.at(1)[0].number, 7);
}

// So that one that was settled elsewhere need not be watched to its end.
TEST_F(LeaseWatchTest, ALongLeaseIsLookedAtOnceAMinute) {
  Grant({1, 7, 1}, clock_.Now() + std::chrono::hours(1));
  for (int minute = 1; minute <= 3; ++minute) {
    clock_.Advance(absl::Minutes(1) + kLate);
    EXPECT_TRUE(Due().empty());
    ASSERT_EQ(held_[1].size(), static_cast<size_t>(minute));
    EXPECT_EQ(held_[1].back().id, 7);
  }
}

TEST_F(LeaseWatchTest, ALongLeaseIsDueAtItsEnd) {
  Grant({1, 7, 1}, clock_.Now() + std::chrono::hours(12));
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
    Grant({1, i, 1}, clock_.Now() + std::chrono::hours(12));
    watch_.Forget(i, 1);
  }
  Grant({1, 20'000, 1}, clock_.Now() + std::chrono::hours(12));
  clock_.Advance(absl::Minutes(2));
  EXPECT_TRUE(Due().empty());
  EXPECT_EQ(watch_.size(), 1u);
  EXPECT_EQ(watch_.entries(), 1u);
}

}  // namespace
}  // namespace tenure::engine
