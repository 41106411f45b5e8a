// Where claims read on: the main cursor, side ranges, and that nothing which appeared is passed over for good. Layer:
// tests.
#include "server/engine/ready_cursor.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tenure::engine {
namespace {

using store::ClaimRange;
using store::Key;
using store::kHighestKey;
using store::kLowestKey;
using RangeRead = store::ClaimResult::RangeRead;

Key At(int64_t id) { return {0, id}; }

void Read(ReadyCursor& cursor, const std::vector<RangeRead>& read) { cursor.Finish(true, read.data(), read.size()); }

// Main cursor at `id`, nothing open.
ReadyCursor ReadTo(int64_t id) {
  ReadyCursor cursor;
  cursor.Add(At(1), At(id));
  EXPECT_EQ(cursor.Plan(0, 10).size(), 1u);
  Read(cursor, {{true, At(id)}});
  EXPECT_FALSE(cursor.MaybeReady());
  return cursor;
}

TEST(ReadyCursorTest, ANewOneHasNothingToRead) {
  ReadyCursor cursor;
  EXPECT_FALSE(cursor.MaybeReady());
  EXPECT_TRUE(cursor.Plan(0, 10).empty());
}

TEST(ReadyCursorTest, ReadsOnBeyondTheLastKeyThatWasRead) {
  ReadyCursor cursor;
  cursor.Add(At(1), At(9));
  auto plan = cursor.Plan(3, 10);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].priority, 3);
  EXPECT_EQ(plan[0].after, kLowestKey);
  EXPECT_EQ(plan[0].upto, kHighestKey);
  Read(cursor, {{false, At(4)}});
  EXPECT_EQ(cursor.main(), At(4));
  EXPECT_TRUE(cursor.MaybeReady());
  plan = cursor.Plan(3, 10);
  EXPECT_EQ(plan[0].after, At(4));
  Read(cursor, {{true, At(9)}});
  EXPECT_FALSE(cursor.MaybeReady());
  EXPECT_EQ(cursor.main(), At(9));
}

TEST(ReadyCursorTest, AnEmptyReadClosesItWhereItStands) {
  ReadyCursor cursor = ReadTo(5);
  cursor.Add(At(7), At(7));
  cursor.Plan(0, 10);
  Read(cursor, {{true, std::nullopt}});
  EXPECT_FALSE(cursor.MaybeReady());
  EXPECT_EQ(cursor.main(), At(5));
}

TEST(ReadyCursorTest, WhatAppearsBehindIsReadBySideAndTheMainCursorStays) {
  ReadyCursor cursor = ReadTo(100);
  cursor.Add(At(20), At(30));
  auto plan = cursor.Plan(0, 10);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].after, At(19));
  EXPECT_EQ(plan[0].upto, At(30));
  Read(cursor, {{false, At(25)}});
  plan = cursor.Plan(0, 10);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].after, At(25));
  EXPECT_EQ(plan[0].upto, At(30));
  Read(cursor, {{true, std::nullopt}});
  EXPECT_FALSE(cursor.MaybeReady());
  EXPECT_EQ(cursor.main(), At(100));
}

TEST(ReadyCursorTest, AStretchOnBothSidesIsReadOnBoth) {
  ReadyCursor cursor = ReadTo(100);
  cursor.Add(At(90), At(110));
  const auto plan = cursor.Plan(0, 10);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].after, At(89));
  EXPECT_EQ(plan[0].upto, At(100));
  EXPECT_EQ(plan[1].after, At(100));
  EXPECT_EQ(plan[1].upto, kHighestKey);
}

// The claim in flight may have begun before the stretch was visible: that it read past it says nothing.
TEST(ReadyCursorTest, WhatComesWhileAClaimIsInFlightIsReadAfterIt) {
  ReadyCursor cursor;
  cursor.Add(At(1), At(50));
  cursor.Plan(0, 10);
  cursor.Add(At(10), At(12));
  cursor.Add(At(60), At(60));
  Read(cursor, {{true, At(50)}});
  const auto plan = cursor.Plan(0, 10);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].after, At(9));
  EXPECT_EQ(plan[0].upto, At(12));
  EXPECT_EQ(plan[1].after, At(50));
}

TEST(ReadyCursorTest, AFailedClaimHasReadNothing) {
  ReadyCursor cursor = ReadTo(100);
  cursor.Add(At(20), At(110));
  const auto before = cursor.Plan(0, 10);
  cursor.Finish(false, nullptr, before.size());
  const auto after = cursor.Plan(0, 10);
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].after, before[i].after);
    EXPECT_EQ(after[i].upto, before[i].upto);
  }
}

TEST(ReadyCursorTest, StretchesBeyondTheLimitWaitForTheNextClaim) {
  ReadyCursor cursor = ReadTo(100);
  for (int64_t id : {10, 20, 30}) cursor.Add(At(id), At(id));
  cursor.Add(At(200), At(200));
  auto plan = cursor.Plan(0, 2);
  ASSERT_EQ(plan.size(), 2u);
  Read(cursor, {{true, At(10)}, {true, std::nullopt}});
  plan = cursor.Plan(0, 2);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].upto, At(30));
  EXPECT_EQ(plan[1].after, At(100));
}

// A backlog beside the cursor that fills each claim must not keep what lies beyond it waiting, nor the other way round.
TEST(ReadyCursorTest, WhatAClaimDidNotGetToComesFirstInTheNext) {
  ReadyCursor cursor = ReadTo(100);
  cursor.Add(At(10), At(90));
  cursor.Add({7, 5}, {7, 9});
  auto plan = cursor.Plan(0, 10);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].upto, At(90));
  Read(cursor, {{false, At(20)}, {false, std::nullopt}});
  plan = cursor.Plan(0, 10);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].upto, kHighestKey);
  EXPECT_EQ(plan[1].after, At(20));
  Read(cursor, {{false, Key{7, 6}}, {false, At(22)}});
  EXPECT_EQ(cursor.main(), (Key{7, 6}));
  plan = cursor.Plan(0, 10);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].after, At(22)) << "the side's turn again";
}

TEST(ReadyCursorTest, OverlappingStretchesAreOneAndManyAreJoined) {
  ReadyCursor cursor = ReadTo(10'000);
  for (int i = 0; i < 5; ++i) cursor.Add(At(100 + i), At(110 + i));
  auto plan = cursor.Plan(0, 10);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].after, At(99));
  EXPECT_EQ(plan[0].upto, At(114));
  Read(cursor, {{true, std::nullopt}});
  for (int i = 0; i < 500; ++i) cursor.Add(At(1 + 10 * i), At(1 + 10 * i));
  plan = cursor.Plan(0, 1000);
  EXPECT_LE(plan.size(), 65u);
  for (int i = 0; i < 500; ++i) {
    EXPECT_TRUE(std::any_of(plan.begin(), plan.end(), [&](const ClaimRange& range) {
      return range.after < At(1 + 10 * i) && At(1 + 10 * i) <= range.upto;
    })) << i;
  }
}

TEST(ReadyCursorTest, LowestIsBeforeEverythingThatMayBeReady) {
  ReadyCursor cursor = ReadTo(100);
  EXPECT_EQ(cursor.Lowest(), At(100));
  cursor.Add(At(40), At(45));
  cursor.Add(At(70), At(75));
  EXPECT_EQ(cursor.Lowest(), At(39));
}

// A table in memory, with ranks: rows appear anywhere, alone or in stretches, also while a claim is in flight (which
// then does not see them); claims read a few keys at a time and sometimes fail. In the end each row was read.
TEST(ReadyCursorTest, NothingIsPassedOverWhateverTheOrder) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    ReadyCursor cursor;
    std::set<Key> ready, ever;
    auto appear = [&] {
      std::vector<Key> keys;
      for (int n = draw(1, 5); n > 0; --n) keys.push_back({draw(0, 3), draw(1, 1000)});
      for (const Key& key : keys) {
        ready.insert(key);
        ever.insert(key);
      }
      cursor.Add(*std::min_element(keys.begin(), keys.end()), *std::max_element(keys.begin(), keys.end()));
    };
    auto claim = [&](bool may_fail) {
      const std::set<Key> snapshot = ready;
      const auto plan = cursor.Plan(0, static_cast<size_t>(draw(1, 6)));
      for (int n = draw(0, 2); n > 0 && may_fail; --n) appear();
      if (may_fail && draw(0, 9) == 0) return cursor.Finish(false, nullptr, plan.size());
      // As claim.sql reads: the stretches in turn, `limit` keys in all.
      size_t left = static_cast<size_t>(draw(1, 8));
      std::vector<RangeRead> read(plan.size());
      for (size_t i = 0; i < plan.size() && left > 0; ++i) {
        for (auto key = snapshot.upper_bound(plan[i].after); key != snapshot.end() && *key <= plan[i].upto && left > 0;
             ++key) {
          ready.erase(*key);
          read[i].last = *key;
          --left;
        }
        read[i].exhausted = left > 0;
      }
      cursor.Finish(true, read.data(), read.size());
    };
    for (int step = 0; step < 300; ++step) {
      if (draw(0, 1) == 0) {
        appear();
      } else {
        claim(true);
      }
    }
    for (int step = 0; cursor.MaybeReady(); ++step) {
      ASSERT_LT(step, 100'000) << "seed " << seed;
      claim(false);
    }
    EXPECT_TRUE(ready.empty()) << "seed " << seed << ": " << ready.size() << " of " << ever.size() << " left";
  }
}

}  // namespace
}  // namespace tenure::engine
