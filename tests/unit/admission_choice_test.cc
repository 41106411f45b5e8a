// The choice of one admission, without a database.
#include "server/store/admission_choice.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tenure::store {
namespace {

// Where each job goes.
std::map<int64_t, int16_t> Places(const AdmissionChoice& choice) {
  std::map<int64_t, int16_t> places;
  for (const GateMove& move : choice.Moves()) places[move.id] = move.to;
  return places;
}

using Moves = std::map<int64_t, int16_t>;

TEST(AdmissionChoice, TheFirstOfALinePassAsFarAsTheAllowanceGoes) {
  AdmissionChoice choice(false);
  choice.Know("a", 2);
  choice.Add({3, 0, kGateFirstKey, {"a"}});
  choice.Add({1, 0, kGateFirstKey, {"a"}});
  choice.Add({2, 5, kGateFirstKey, {"a"}});
  choice.Run();
  EXPECT_EQ(Places(choice), (Moves{{2, kGateAdmitted}, {1, kGateAdmitted}}))
      << "the higher priority, then the lower id";
  EXPECT_EQ(choice.Passed("a"), 2);
  EXPECT_TRUE(choice.AnyoneLeft("a"));
}

TEST(AdmissionChoice, WhoPassesOneKeyWaitsAtTheNextAndHoldsTheFirst) {
  AdmissionChoice choice(false);
  choice.Know("a", 1);
  choice.Add({1, 0, kGateFirstKey, {"a", "b"}});
  choice.Add({2, 0, kGateFirstKey, {"a"}});
  choice.Run();
  EXPECT_EQ(choice.Unknown(), std::set<std::string>{"b"});
  choice.Know("b", 0);
  choice.Run();
  EXPECT_TRUE(choice.Unknown().empty());
  EXPECT_EQ(Places(choice), (Moves{{1, kGateFirstKey + 1}}));
}

TEST(AdmissionChoice, OneThatComesToALineWaitsItsTurn) {
  AdmissionChoice choice(false);
  choice.Know("a", 1);
  choice.Add({5, 0, kGateFirstKey, {"a", "b"}});
  choice.Run();
  choice.Know("b", 1);
  choice.Add({2, 0, kGateFirstKey, {"b"}});  // Was there before, and is older.
  choice.Run();
  EXPECT_EQ(Places(choice), (Moves{{2, kGateAdmitted}, {5, kGateFirstKey + 1}}));
}

TEST(AdmissionChoice, TheQueueIsTheLastGate) {
  AdmissionChoice choice(true);
  choice.Know("a", 3);
  choice.Know("", 1);
  for (int64_t id : {1, 2, 3}) choice.Add({id, 0, kGateFirstKey, {"a"}});
  choice.Add({4, 0, kGateQueue, {}});
  choice.Run();
  EXPECT_EQ(Places(choice), (Moves{{1, kGateAdmitted}, {2, kGateQueue}, {3, kGateQueue}}));
}

TEST(AdmissionChoice, AQueueThatHasNoGateAnyMoreLetsItsLineGo) {
  AdmissionChoice choice(false);
  choice.Know("", 10);
  choice.Add({4, 0, kGateQueue, {}});
  choice.Run();
  EXPECT_EQ(Places(choice), (Moves{{4, kGateAdmitted}}));
}

TEST(AdmissionChoice, TheHeadOfAGroupGoesOnToItsKeys) {
  AdmissionChoice choice(false);
  choice.Add({7, 0, kGateGroup, {"a"}});
  choice.Add({8, 0, kGateGroup, {}});
  EXPECT_EQ(choice.Unknown(), std::set<std::string>{"a"});
  choice.Know("a", 1);
  choice.Run();
  EXPECT_EQ(Places(choice), (Moves{{7, kGateAdmitted}, {8, kGateAdmitted}}));
}

TEST(RateAllowance, BurstThenOnePerInterval) {
  EXPECT_EQ(RateAllowance(100, 5, 0), 5);
  EXPECT_EQ(RateAllowance(100, 5, -1000), 5) << "a long rest saves up no more than the burst";
  EXPECT_EQ(RateAllowance(100, 5, 500), 0);
  EXPECT_EQ(RateAllowance(100, 5, 401), 0);
  EXPECT_EQ(RateAllowance(100, 5, 400), 1);
  EXPECT_EQ(RateWait(100, 5, 0, 5), 100);
  EXPECT_EQ(RateWait(100, 5, 0, 4), 0);
  EXPECT_EQ(RateWait(100, 1, 30, 0), 30);
}

// By any sequence of looks at any times no window of a second has more starts than the burst and one per interval.
TEST(RateAllowance, NeverLetsMoreThanTheRatePass) {
  constexpr int64_t kInterval = 1000, kBurst = 7;
  int64_t now = 0, next = 0;
  std::vector<int64_t> starts;
  for (int look = 0; look < 5000; ++look) {
    now += (look * 7919) % 2311;
    const int64_t allowed = std::min<int64_t>(RateAllowance(kInterval, kBurst, next - now), 1 + look % 5);
    for (int64_t i = 0; i < allowed; ++i) starts.push_back(now);
    next = std::max(next, now) + allowed * kInterval;
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    for (size_t j = i; j < starts.size() && j < i + 50; ++j) {
      EXPECT_LE(static_cast<int64_t>(j - i + 1), kBurst + (starts[j] - starts[i]) / kInterval + 1);
    }
  }
  EXPECT_GT(static_cast<int64_t>(starts.size()), now / kInterval * 9 / 10) << "and no less";
}

}  // namespace
}  // namespace tenure::store
