// How shards are divided: pure functions, walked through with replicas that come, go, vanish and fail at random. Layer:
// tests.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/shards.h"

namespace tenure::store {
namespace {

using ::testing::ElementsAre;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);
constexpr absl::Duration kLease = absl::Seconds(6);

// What the statement does with a change: rows that are what they were are replaced, held ones with a whole lease.
void Apply(std::vector<ShardRow>& rows, const ShardChange& change, int32_t self, absl::Time now) {
  for (const ShardRow& removed : change.remove) {
    const auto at = std::find(rows.begin(), rows.end(), removed);
    ASSERT_NE(at, rows.end());
    rows.erase(at);
  }
  for (ShardRow added : change.add) {
    if (added.replica == self) added.expires = now + kLease;
    rows.push_back(added);
  }
  std::sort(rows.begin(), rows.end(), [](const ShardRow& a, const ShardRow& b) { return a.first < b.first; });
}

std::string Ranges(const std::vector<ShardRow>& rows, int32_t replica) {
  std::vector<ShardRow> held;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(held),
               [&](const ShardRow& row) { return row.replica == replica; });
  return FormatShards(held);
}

TEST(ShardPlanTest, OneReplicaTakesEverythingUnderTheNextTerm) {
  std::vector<ShardRow> rows = {{.term = 4}};
  Apply(rows, PlanShards(rows, std::vector<int32_t>{7}, 7, kNow), 7, kNow);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].replica, 7);
  EXPECT_EQ(rows[0].term, 5);
  EXPECT_TRUE(PlanShards(rows, std::vector<int32_t>{7}, 7, kNow).remove.empty()) << "nothing more to do";
}

TEST(ShardPlanTest, ASecondReplicaGetsItsHalfOnceTheFirstHasGivenItUp) {
  std::vector<ShardRow> rows = {{.term = 5, .replica = 7, .since = kNow, .expires = kNow + kLease}};
  const std::vector<int32_t> members = {7, 9};
  EXPECT_TRUE(PlanShards(rows, members, 9, kNow).remove.empty()) << "nobody touches what another one holds";
  Apply(rows, PlanShards(rows, members, 7, kNow), 7, kNow);
  EXPECT_EQ(Ranges(rows, 7), "0-511");
  EXPECT_EQ(Ranges(rows, 0), "512-1023");
  Apply(rows, PlanShards(rows, members, 9, kNow), 9, kNow);
  EXPECT_EQ(Ranges(rows, 9), "512-1023");
  EXPECT_EQ(rows[0].term, 5) << "its holder has not changed";
  EXPECT_EQ(rows[1].term, 6);
}

TEST(ShardPlanTest, WhatAVanishedReplicaHeldIsTakenWhenItRunsOutAndNotBefore) {
  std::vector<ShardRow> rows = {{.last = 511, .term = 5, .replica = 7, .since = kNow, .expires = kNow + kLease},
                                {.first = 512, .term = 6, .replica = 9, .since = kNow, .expires = kNow + kLease / 2}};
  const std::vector<int32_t> members = {7};
  EXPECT_TRUE(PlanShards(rows, members, 7, kNow).remove.empty());
  Apply(rows, PlanShards(rows, members, 7, kNow + kLease / 2), 7, kNow + kLease / 2);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].replica, 7);
  EXPECT_GT(rows[0].term, 7) << "above both, and above what it took";
}

TEST(ShardPlanTest, WhoTakesPartNoLongerGivesUpEverything) {
  std::vector<ShardRow> rows = {{.term = 5, .replica = 7, .since = kNow, .expires = kNow + kLease}};
  Apply(rows, PlanShards(rows, std::vector<int32_t>{9}, 7, kNow), 7, kNow);
  EXPECT_EQ(Ranges(rows, 0), "0-1023");
}

TEST(ShardPlanTest, AShardThatFailsIsLostAloneAndRestsForLongerEachTime) {
  std::vector<ShardRow> rows = {{.term = 5, .replica = 7, .since = kNow, .expires = kNow + kLease}};
  const std::vector<int32_t> members = {7};
  absl::Time now = kNow;
  for (const int rest : {1, 5, 30, 120, 120}) {
    const auto failing =
        std::find_if(rows.begin(), rows.end(), [](const ShardRow& row) { return row.first <= 17 && 17 <= row.last; });
    Apply(rows, FailShard(*failing, 17, "broken", now), 7, now);
    EXPECT_EQ(Ranges(rows, 7), "0-16, 18-1023");
    EXPECT_EQ(Ranges(rows, 0), "17");
    for (ShardRow& row : rows) row.expires = row.replica == 7 ? now + absl::Hours(1) : row.expires;
    now += absl::Seconds(rest) - absl::Milliseconds(1);
    EXPECT_TRUE(PlanShards(rows, members, 7, now).remove.empty()) << "it rests for " << rest << " s";
    now += absl::Milliseconds(1);
    Apply(rows, PlanShards(rows, members, 7, now), 7, now);
    EXPECT_EQ(Ranges(rows, 7), "0-1023");
    EXPECT_EQ(rows.size(), 3u) << "a range of its own until it has been well for a while";
    for (ShardRow& row : rows) row.expires = now + absl::Hours(1);
  }
  now += absl::Minutes(5);
  Apply(rows, PlanShards(rows, members, 7, now), 7, now);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].failures, 0);
  EXPECT_EQ(rows[0].last_error, "");
}

TEST(ShardPlanTest, QueuesThatFollowOneAnotherSpreadOverTheShards) {
  std::map<int, int> by_quarter;
  std::set<int> shards;
  for (int32_t queue = 1; queue <= 100; ++queue) {
    const int shard = ShardOf(queue);
    ASSERT_TRUE(shard >= 0 && shard < kShards);
    shards.insert(shard);
    ++by_quarter[shard / 256];
  }
  EXPECT_GT(shards.size(), 90u);
  for (const auto& [quarter, queues] : by_quarter) EXPECT_NEAR(queues, 25, 3) << quarter;
}

// Replicas come, go in order, vanish, stand still and fail, each with its own idea of when to look. After every step
// each shard is in one row, its term has not sunk, and no term of a shard had two holders; when it is quiet, the
// division is even and as coarse as can be.
TEST(ShardPlanTest, ARandomWalkNeverGivesAShardTwoHolders) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const auto up_to = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    std::vector<ShardRow> rows = {ShardRow{}};
    std::map<int32_t, absl::Time> members;  // When they expire.
    std::set<int32_t> dead;
    std::vector<int64_t> terms(kShards, 0);
    std::map<std::pair<int, int64_t>, int32_t> holders;
    absl::Time now = kNow;
    int32_t next_replica = 1;
    const auto check = [&] {
      int32_t expected = 0;
      for (const ShardRow& row : rows) {
        ASSERT_EQ(row.first, expected) << "seed " << seed;
        ASSERT_LE(row.first, row.last);
        expected = row.last + 1;
        for (int shard = row.first; shard <= row.last; ++shard) {
          ASSERT_GE(row.term, terms[static_cast<size_t>(shard)]) << "seed " << seed << " shard " << shard;
          terms[static_cast<size_t>(shard)] = row.term;
          if (row.replica == 0) continue;
          const auto [at, fresh] = holders.try_emplace({shard, row.term}, row.replica);
          ASSERT_EQ(at->second, row.replica) << "seed " << seed << " shard " << shard << " term " << row.term;
        }
      }
      ASSERT_EQ(expected, kShards);
    };
    const auto look = [&](int32_t replica) {
      for (ShardRow& row : rows) {
        if (row.replica == replica && row.expires > now) row.expires = now + kLease;
      }
      members[replica] = now + kLease;
      std::vector<int32_t> live;
      for (const auto& [id, expires] : members) {
        if (expires > now) live.push_back(id);
      }
      const ShardChange change = PlanShards(rows, live, replica, now);
      for (const ShardRow& removed : change.remove) {
        ASSERT_TRUE(removed.replica == replica || removed.expires <= now) << "another one's";
      }
      Apply(rows, change, replica, now);
      check();
    };
    const auto alive = [&] {
      std::vector<int32_t> ids;
      for (const auto& [id, unused] : members) {
        if (!dead.contains(id)) ids.push_back(id);
      }
      return ids;
    };
    for (int step = 0; step < 150; ++step) {
      now += absl::Milliseconds(up_to(1500));
      const std::vector<int32_t> ids = alive();
      const int what = up_to(20);
      if (ids.empty() || (what == 0 && ids.size() < 5)) {
        look(next_replica++);
      } else if (what == 1) {
        dead.insert(ids[static_cast<size_t>(up_to(static_cast<int>(ids.size())))]);
      } else if (what <= 3) {
        const int shard = up_to(kShards);
        const auto row = std::find_if(rows.begin(), rows.end(), [&](const ShardRow& one) { return shard <= one.last; });
        if (row->replica != 0 && row->expires > now && !dead.contains(row->replica)) {
          const int32_t holder = row->replica;
          Apply(rows, FailShard(*row, shard, "broken", now), holder, now);
          check();
        }
      } else {
        look(ids[static_cast<size_t>(up_to(static_cast<int>(ids.size())))]);
      }
      if (HasFatalFailure()) return;
    }
    for (int quiet = 0; quiet < 400; ++quiet) {
      now += absl::Seconds(1);
      for (const int32_t id : alive()) look(id);
    }
    const std::vector<int32_t> ids = alive();
    if (ids.empty()) continue;
    ASSERT_EQ(rows.size(), ids.size()) << "seed " << seed;
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(rows[i].replica, ids[i]);
      EXPECT_NEAR(rows[i].last - rows[i].first + 1, kShards / static_cast<double>(ids.size()), 1);
    }
  }
}

TEST(ShardPlanTest, NeighboursAreWrittenAsOneRange) {
  EXPECT_EQ(FormatShards({}), "");
  EXPECT_EQ(FormatShards(std::vector<ShardRow>{{.first = 3, .last = 3}}), "3");
  EXPECT_EQ(FormatShards(std::vector<ShardRow>{{.first = 0, .last = 9}, {.first = 10, .last = 20}, {.first = 22}}),
            "0-20, 22-1023");
}

}  // namespace
}  // namespace tenure::store
