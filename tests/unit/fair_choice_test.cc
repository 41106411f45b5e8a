// Whose turn it is: shares, newcomers, priorities, and lines that were not read far enough.
#include "server/store/fair_choice.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace tenure::store {
namespace {

FairTenant Tenant(int64_t first_id, int jobs, int32_t weight = 1, int64_t next_start = 0, int16_t priority = 0) {
  FairTenant tenant;
  tenant.weight = weight;
  tenant.next_start = next_start;
  for (int i = 0; i < jobs; ++i) tenant.line.push_back({first_id + i, priority});
  return tenant;
}

std::vector<int64_t> Ids(const std::vector<FairPick>& picks) {
  std::vector<int64_t> ids;
  for (const FairPick& pick : picks) ids.push_back(pick.id);
  return ids;
}

TEST(FairChoice, TenantsTakeTurnsWhateverTheirBacklogs) {
  FairChoice choice({.window = 10'000});
  choice.Add("large", Tenant(1, 100));
  choice.Add("small", Tenant(1000, 2));
  EXPECT_EQ(Ids(choice.Run(6)), (std::vector<int64_t>{1, 1000, 2, 1001, 3, 4}));
  EXPECT_FALSE(choice.cut());
  EXPECT_TRUE(choice.AnyoneLeft());
  EXPECT_EQ(choice.next_starts().at("large"), 4 * kFairTurn);
}

TEST(FairChoice, SharesFollowTheWeights) {
  FairChoice choice({.window = 10'000});
  choice.Add("one", Tenant(0, 1000, 1));
  choice.Add("three", Tenant(10'000, 1000, 3));
  choice.Add("seven", Tenant(20'000, 1000, 7));
  std::map<int64_t, int> passed;
  for (const FairPick& pick : choice.Run(1100)) ++passed[pick.id / 10'000];
  EXPECT_NEAR(passed[0], 100, 1);
  EXPECT_NEAR(passed[1], 300, 1);
  EXPECT_NEAR(passed[2], 700, 1);
}

TEST(FairChoice, WhoWasAwayHasNotSavedUpTurnsAndGoesNext) {
  FairChoice choice({.virtual_time = 50 * kFairTurn, .window = 10'000});
  choice.Add("busy", Tenant(1, 10, 1, 60 * kFairTurn));
  choice.Add("back", Tenant(100, 20, 1, 3 * kFairTurn));
  const std::vector<FairPick> picks = choice.Run(14);
  EXPECT_EQ(picks.front().id, 100);
  EXPECT_EQ(picks.front().rank, 50 * kFairTurn);
  // Ten turns until it has caught up with who was there, then one and one.
  EXPECT_EQ(Ids(picks), (std::vector<int64_t>{100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 1, 110, 2, 111}));
}

TEST(FairChoice, HigherPrioritiesGoFirstAndCostTurns) {
  FairChoice choice({.window = 10'000});
  choice.Add("a", Tenant(1, 2, 1, 0, 5));
  FairTenant mixed = Tenant(10, 1, 1, 0, 5);
  mixed.line.push_back({11, 0});
  choice.Add("b", mixed);
  choice.Add("c", Tenant(20, 1));
  EXPECT_EQ(Ids(choice.Run(10)), (std::vector<int64_t>{1, 10, 2, 20, 11}));
}

TEST(FairChoice, AFullWindowHoldsUpNeitherNewcomersNorHigherPriorities) {
  FairQueue queue;
  queue.virtual_time = 10 * kFairTurn;
  queue.last_start = 13 * kFairTurn;
  queue.ready = {{0, 4}};
  queue.window = 4;
  FairChoice full(queue);
  full.Add("busy", Tenant(1, 10, 1, 14 * kFairTurn));
  EXPECT_TRUE(full.Run(100).empty());
  EXPECT_TRUE(full.AnyoneLeft());
  FairChoice choice(queue);
  choice.Add("busy", Tenant(1, 10, 1, 14 * kFairTurn));
  choice.Add("new", Tenant(100, 10));
  choice.Add("urgent", Tenant(200, 10, 1, 14 * kFairTurn, 5));
  EXPECT_EQ(Ids(choice.Run(100)), (std::vector<int64_t>{200, 201, 202, 203, 100, 101, 102}));
}

TEST(FairChoice, EndsWhereItDoesNotKnowWhoIsNext) {
  FairChoice choice({.window = 10'000});
  FairTenant unread = Tenant(1, 2);
  unread.more = true;
  choice.Add("a", unread);
  choice.Add("b", Tenant(10, 5));
  EXPECT_EQ(Ids(choice.Run(10)), (std::vector<int64_t>{1, 10, 2}));
  EXPECT_TRUE(choice.cut());
  EXPECT_TRUE(choice.AnyoneLeft());
}

// Many looks of odd sizes, with tenants that come and go: over any time in which two always wait, their shares are
// within one turn of what their weights say.
TEST(FairChoice, ManySmallLooksAreAsFairAsOneLargeOne) {
  std::mt19937 random(7);
  std::map<std::string, int64_t> starts;
  std::map<std::string, int> passed;
  const std::map<std::string, int32_t> weights{{"a", 1}, {"b", 2}, {"c", 5}};
  int64_t virtual_time = 0, id = 0;
  for (int look = 0; look < 2000; ++look) {
    FairChoice choice({.virtual_time = virtual_time, .window = 10'000});
    std::map<int64_t, std::string> owner;
    for (const auto& [name, weight] : weights) {
      choice.Add(name, Tenant(id, 40, weight, starts[name]));
      for (int i = 0; i < 40; ++i) owner[id + i] = name;
      id += 40;
    }
    if (random() % 2 == 0) {
      choice.Add("guest", Tenant(id, 1, 1, starts["guest"]));
      owner[id++] = "guest";
    }
    const std::vector<FairPick> picks = choice.Run(1 + static_cast<int64_t>(random() % 20));
    for (const FairPick& pick : picks) ++passed[owner[pick.id]];
    virtual_time = std::max(virtual_time, picks.front().rank);
    for (const auto& [name, next] : choice.next_starts()) starts[name] = next;
  }
  EXPECT_NEAR(passed["b"], 2.0 * passed["a"], 3);
  EXPECT_NEAR(passed["c"], 5.0 * passed["a"], 6);
  EXPECT_GT(passed["guest"], 0);
  EXPECT_LE(passed["guest"], passed["a"] + 1) << "one that waits half of the time gets no more than its weight";
}

TEST(FairPart, IsTheShareRoundedUpAndOneMore) {
  EXPECT_EQ(FairPart(64, 1, 1), 65);
  EXPECT_EQ(FairPart(64, 1, 3), 23);
  EXPECT_EQ(FairPart(1, 1, 1000), 2);
}

TEST(FairWindow, GrowsWithWhatIsTakenAndShrinksSlowly) {
  FairWindow window;
  EXPECT_EQ(window.Next(), FairWindow::kLeast);
  window.Took(500);
  EXPECT_EQ(window.Next(), 2000);
  EXPECT_EQ(window.Next(), 2000) << "a look without claims says nothing";
  window.Took(1);
  EXPECT_EQ(window.Next(), 1500);
  window.Took(100'000);
  EXPECT_EQ(window.Next(), FairWindow::kMost);
}

}  // namespace
}  // namespace tenure::store
