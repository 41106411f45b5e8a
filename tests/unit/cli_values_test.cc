// How the command line reads and writes durations, times, states, pairs and text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "client/cli/selection.h"
#include "client/cli/values.h"

namespace tenure::cli {
namespace {

using ::testing::HasSubstr;

TEST(CliDuration, ReadsNumbersWithUnits) {
  const std::pair<const char*, absl::Duration> cases[] = {
      {"500ms", absl::Milliseconds(500)}, {"2s", absl::Seconds(2)},
      {"1m30s", absl::Seconds(90)},       {"1h", absl::Hours(1)},
      {"7d", absl::Hours(168)},           {"1.5h", absl::Minutes(90)},
      {"0s", absl::ZeroDuration()},       {"1d2h3m4s5ms", absl::Seconds(93784) + absl::Milliseconds(5)},
      {"3650d", absl::Hours(24) * 3650},
  };
  for (const auto& [text, expected] : cases) {
    const auto parsed = ParseDuration(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status();
    EXPECT_EQ(*parsed, expected) << text;
  }
}

TEST(CliDuration, RefusesEverythingElseAndStatesTheRule) {
  for (const char* text : {"", "2", "s", "2x", "-2s", "+2s", "2 s", "1..5s", "inf", "2S", "1h30", "ms", "1,5s"}) {
    const auto parsed = ParseDuration(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("write numbers with a unit"));
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(text));
  }
}

TEST(CliDuration, IsShownWithAtMostTwoUnits) {
  EXPECT_EQ(ShowDuration(absl::ZeroDuration()), "0s");
  EXPECT_EQ(ShowDuration(absl::Milliseconds(250)), "250ms");
  EXPECT_EQ(ShowDuration(absl::Milliseconds(1999)), "1s");
  EXPECT_EQ(ShowDuration(absl::Seconds(12)), "12s");
  EXPECT_EQ(ShowDuration(absl::Seconds(200)), "3m20s");
  EXPECT_EQ(ShowDuration(absl::Hours(2)), "2h");
  EXPECT_EQ(ShowDuration(absl::Hours(2) + absl::Seconds(5)), "2h");
  EXPECT_EQ(ShowDuration(absl::Hours(28) + absl::Minutes(59)), "1d4h");
  EXPECT_EQ(ShowDuration(-absl::Seconds(5)), "-5s");
  EXPECT_EQ(ShowDuration(absl::InfiniteDuration()), "forever");
}

TEST(CliTime, ReadsRfc3339NowAndOffsets) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  EXPECT_EQ(*ParseTime("now", now), now);
  EXPECT_EQ(*ParseTime("-1h", now), now - absl::Hours(1));
  EXPECT_EQ(*ParseTime("+30m", now), now + absl::Minutes(30));
  EXPECT_EQ(*ParseTime("1970-01-02T00:00:00Z", now), absl::FromUnixSeconds(86400));
  EXPECT_EQ(*ParseTime("1970-01-02T01:00:00.5+01:00", now), absl::FromUnixMillis(86400500));
  for (const char* text : {"", "yesterday", "1h", "-x", "2026-11-29", "12:00"}) {
    EXPECT_THAT(std::string(ParseTime(text, now).status().message()), HasSubstr("is not a time")) << text;
  }
}

TEST(CliTime, IsShownRelativeToNow) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  EXPECT_EQ(ShowWhen(now + absl::Seconds(12), now), "in 12s");
  EXPECT_EQ(ShowWhen(now - absl::Minutes(3), now), "3m ago");
  EXPECT_EQ(ShowWhen(now, now), "now");
  EXPECT_EQ(ShowWhen(now - absl::Milliseconds(300), now), "now");
  EXPECT_EQ(ShowTime(absl::FromUnixMillis(86400250)), "1970-01-02T00:00:00.250Z");
}

TEST(CliTime, TravelsThroughTheProtosUnchanged) {
  const absl::Time time = absl::FromUnixNanos(1'800'000'000'123'456'789);
  EXPECT_EQ(FromProto(ToProto(time)), time);
  const absl::Duration duration = absl::Hours(24) * 3650 + absl::Milliseconds(1);
  EXPECT_EQ(FromProto(ToProto(duration)), duration);
}

TEST(CliPair, SplitsAtTheFirstEqualsSign) {
  EXPECT_EQ(*ParsePair("a=b"), std::make_pair(std::string("a"), std::string("b")));
  EXPECT_EQ(*ParsePair("a=b=c"), std::make_pair(std::string("a"), std::string("b=c")));
  EXPECT_EQ(*ParsePair("a="), std::make_pair(std::string("a"), std::string()));
  for (const char* text : {"", "a", "=b"}) {
    EXPECT_THAT(std::string(ParsePair(text).status().message()), HasSubstr("write key=value")) << text;
  }
}

TEST(CliState, NamesEveryStateOfTheProto) {
  for (int number = 1; number <= v1::JobState_MAX; ++number) {
    const auto state = static_cast<v1::JobState>(number);
    const std::string name = StateName(state);
    EXPECT_EQ("JOB_STATE_" + absl::AsciiStrToUpper(name), v1::JobState_Name(state));
    EXPECT_EQ(*ParseState(name), state);
    EXPECT_EQ(IsFinal(state), number >= v1::JOB_STATE_COMPLETED) << name;
  }
  EXPECT_EQ(*ParseState("READY"), v1::JOB_STATE_READY);
  EXPECT_THAT(std::string(ParseState("running").status().message()), HasSubstr("one of scheduled, blocked, ready"));
}

TEST(CliText, CannotSteerATerminalAndIsCutBetweenCharacters) {
  EXPECT_EQ(OneLine("a\nb\tc\x1b[31m", 100), "a b c [31m");
  EXPECT_EQ(OneLine("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(OneLine("abcdefghi", 8), "abcde...");
  // The cut would fall inside the two bytes of the last character kept.
  EXPECT_EQ(OneLine("abcd\xc3\xa9xyz", 8), "abcd...");
}

TEST(CliText, KnowsValidUtf8) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8("plain, \xc3\xa9, \xe2\x82\xac, \xf0\x9f\x98\x80"));
  for (const char* bytes :
       {"\xff", "\xc3", "\xc3(", "\xe2\x82", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80"}) {
    EXPECT_FALSE(IsValidUtf8(bytes)) << testing::PrintToString(std::string(bytes));
  }
}

TEST(CliToken, ShowsOnlyTheJob) {
  EXPECT_EQ(JobOfToken("7-20786-1.3.20786.9f86d081884c7d65"), "7-20786-1");
  EXPECT_EQ(JobOfToken("nonsense"), "nonsense");
}

TEST(CliSelection, ReadsAWeight) {
  EXPECT_EQ(ParseSelection("mail")->queue(), "mail");
  EXPECT_EQ(ParseSelection("a/b:c=3")->queue(), "a/b:c");
  EXPECT_EQ(ParseSelection("a/b:c=3")->weight(), 3);
  for (const char* text : {"mail=", "mail=0", "mail=1001", "mail=x", "mail=1=2"}) {
    EXPECT_THAT(std::string(ParseSelection(text).status().message()), HasSubstr("weight from 1 to 1000")) << text;
  }
  EXPECT_FALSE(ParseSelection("").ok());
  EXPECT_FALSE(ParseSelection("=3").ok());
}

}  // namespace
}  // namespace tenure::cli
