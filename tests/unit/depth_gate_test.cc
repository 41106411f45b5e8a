// DepthGate: what counts as there already while events lag.
#include "server/engine/depth_gate.h"

#include <gtest/gtest.h>

namespace tenure::engine {
namespace {

TEST(DepthGate, LetsThroughWhatThereIsRoomFor) {
  DepthGate gate;
  EXPECT_EQ(gate.Admit(1, 0, 10, 4), 4);
  EXPECT_EQ(gate.Admit(1, 0, 10, 8), 6);
  EXPECT_EQ(gate.Admit(1, 0, 10, 1), 0);
  EXPECT_EQ(gate.Admit(2, 9, 10, 5), 1);
  EXPECT_EQ(gate.Admit(3, 12, 10, 5), 0);  // Over it already: lowered, or filled by others.
}

TEST(DepthGate, CountsWhatWasWrittenUntilEventsHaveToldOfIt) {
  DepthGate gate;
  ASSERT_EQ(gate.Admit(1, 0, 10, 10), 10);
  gate.Answered(1, 10, 7);  // Three were refused or duplicates.
  EXPECT_EQ(gate.Admit(1, 0, 10, 10), 3);
  gate.Answered(1, 3, 0);
  // A reading that began before an answer may not have seen it.
  gate.ReadingBegins();
  ASSERT_EQ(gate.Admit(1, 0, 10, 1), 1);
  gate.Answered(1, 1, 1);
  gate.ReadingEnded();
  EXPECT_EQ(gate.Admit(1, 7, 10, 10), 2);
  gate.Answered(1, 2, 0);
  gate.ReadingBegins();
  gate.ReadingEnded();
  EXPECT_EQ(gate.Admit(1, 8, 10, 10), 2);
}

TEST(DepthGate, AReadingThatFailedIsMadeUpForByTheNext) {
  DepthGate gate;
  ASSERT_EQ(gate.Admit(1, 0, 2, 2), 2);
  gate.Answered(1, 2, 2);
  gate.ReadingBegins();
  EXPECT_EQ(gate.Admit(1, 0, 2, 1), 0);
  gate.ReadingBegins();
  EXPECT_EQ(gate.Admit(1, 0, 2, 1), 0);
  gate.ReadingEnded();
  EXPECT_EQ(gate.Admit(1, 1, 2, 1), 1);
}

}  // namespace
}  // namespace tenure::engine
