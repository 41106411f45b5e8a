// Cron expressions: the parser with its errors, next() against a walk over every minute of two years in zones whose
// clocks change, and what random text does to it. Layer: tests.
#include "server/base/cron.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/time_zone.h"

namespace tenure {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CronExpression Cron(std::string_view text) {
  absl::StatusOr<CronExpression> parsed = CronExpression::Parse(text);
  if (!parsed.ok()) ADD_FAILURE() << text << ": " << parsed.status();
  return parsed.ok() ? *parsed : *CronExpression::Parse("@yearly");
}

absl::TimeZone Zone(std::string_view name) {
  absl::StatusOr<absl::TimeZone> zone = LoadZone(name);
  if (!zone.ok()) ADD_FAILURE() << name << ": " << zone.status();
  return zone.ok() ? *zone : absl::UTCTimeZone();
}

absl::Time At(const char* text) {
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, &error)) << error;
  return time;
}

std::string Show(absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%MZ", time, absl::UTCTimeZone()); }

// The next `count` instants after `after`.
std::vector<std::string> Following(std::string_view text, std::string_view zone, const char* after, int count) {
  const CronExpression cron = Cron(text);
  const absl::TimeZone loaded = Zone(zone);
  std::vector<std::string> out;
  absl::Time at = At(after);
  for (int i = 0; i < count; ++i) {
    const std::optional<absl::Time> next = cron.Next(at, loaded);
    if (!next) {
      out.push_back("none");
      break;
    }
    at = *next;
    out.push_back(Show(at));
  }
  return out;
}

TEST(CronTest, FieldsRangesListsStepsAndNames) {
  EXPECT_THAT(Following("30 6 * * *", "UTC", "2026-03-01T06:30:00Z", 2),
              ElementsAre("2026-03-02T06:30Z", "2026-03-03T06:30Z"));
  EXPECT_THAT(Following("*/20 9-10 * * MON-FRI", "UTC", "2026-03-06T10:30:00Z", 4),
              ElementsAre("2026-03-06T10:40Z", "2026-03-09T09:00Z", "2026-03-09T09:20Z", "2026-03-09T09:40Z"));
  EXPECT_THAT(Following("0 0 1 JAN,jul *", "UTC", "2026-03-01T00:00:00Z", 2),
              ElementsAre("2026-07-01T00:00Z", "2027-01-01T00:00Z"));
  EXPECT_THAT(Following("5-59/25 0 * * ?", "UTC", "2026-03-01T00:00:00Z", 3),
              ElementsAre("2026-03-01T00:05Z", "2026-03-01T00:30Z", "2026-03-01T00:55Z"));
  EXPECT_THAT(Following("50/5 23 * * *", "UTC", "2026-03-01T00:00:00Z", 3),
              ElementsAre("2026-03-01T23:50Z", "2026-03-01T23:55Z", "2026-03-02T23:50Z"));
  EXPECT_THAT(Following("0 0 * * 7", "UTC", "2026-03-01T00:00:00Z", 1), ElementsAre("2026-03-08T00:00Z"));
  EXPECT_THAT(Following("0 0 * * sat-sun", "UTC", "2026-03-02T00:00:00Z", 3),
              ElementsAre("2026-03-07T00:00Z", "2026-03-08T00:00Z", "2026-03-14T00:00Z"));
  EXPECT_THAT(Following("0 12 L * *", "UTC", "2024-01-31T12:00:00Z", 2),
              ElementsAre("2024-02-29T12:00Z", "2024-03-31T12:00Z"));
  EXPECT_THAT(Following("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", 1), ElementsAre("2104-02-29T00:00Z"));
}

TEST(CronTest, WithBothDayFieldsEitherWillDo) {
  EXPECT_THAT(Following("0 0 13 * FRI", "UTC", "2026-03-01T00:00:00Z", 4),
              ElementsAre("2026-03-06T00:00Z", "2026-03-13T00:00Z", "2026-03-20T00:00Z", "2026-03-27T00:00Z"));
  EXPECT_THAT(Following("0 0 30 2 MON", "UTC", "2026-03-01T00:00:00Z", 1), ElementsAre("2027-02-01T00:00Z"));
}

TEST(CronTest, NamedExpressions) {
  EXPECT_THAT(Following("@hourly", "UTC", "2026-03-01T00:30:00Z", 1), ElementsAre("2026-03-01T01:00Z"));
  EXPECT_THAT(Following("@daily", "UTC", "2026-03-01T00:30:00Z", 1), ElementsAre("2026-03-02T00:00Z"));
  EXPECT_THAT(Following("@midnight", "UTC", "2026-03-01T00:30:00Z", 1), ElementsAre("2026-03-02T00:00Z"));
  EXPECT_THAT(Following("@weekly", "UTC", "2026-03-02T00:30:00Z", 1), ElementsAre("2026-03-08T00:00Z"));
  EXPECT_THAT(Following(" @Monthly ", "UTC", "2026-03-02T00:30:00Z", 1), ElementsAre("2026-04-01T00:00Z"));
  EXPECT_THAT(Following("@yearly", "UTC", "2026-03-02T00:30:00Z", 1), ElementsAre("2027-01-01T00:00Z"));
  EXPECT_THAT(Following("@annually", "UTC", "2026-03-02T00:30:00Z", 1), ElementsAre("2027-01-01T00:00Z"));
}

TEST(CronTest, ErrorsNameThePartAndTheRule) {
  const std::map<std::string, std::string> cases = {
      {"", "has 0 fields; five are needed"},
      {"* * * *", "has 4 fields"},
      {"0 0 0 * * *", "has 6 fields"},
      {"60 * * * *", "in the minute: 60 is not from 0 to 59"},
      {"* 24 * * *", "in the hour: 24 is not from 0 to 23"},
      {"* * 0 * *", "in the day of month: 0 is not from 1 to 31"},
      {"* * * 13 *", "in the month: 13 is not from 1 to 12"},
      {"* * * * 8", "in the day of week: 8 is not from 0 to 7"},
      {"* * * foo *", "in the month: 'foo' is neither a number, a name (jan, feb ...) nor *"},
      {"jan * * * *", "in the minute: 'jan' is neither a number nor *"},
      {"*/0 * * * *", "the step '0' is not a number from 1 to 59"},
      {"*/90 * * * *", "the step '90' is not a number from 1 to 59"},
      {"*/-1 * * * *", "the step '-1'"},
      {"*/1/2 * * * *", "more than one step"},
      {"1,,2 * * * *", "nothing between two commas"},
      {"1-2-3 * * * *", "is not a range"},
      {"30-10 * * * *", "ends before it begins"},
      {"* * * * FRI-MON", "ends before it begins; write two ranges"},
      {"? * * * *", "in the minute: '?'"},
      {"0 0 30 2 *", "never matches"},
      {"0 0 31 4,6,9,11 *", "never matches"},
      {"0 0 * * 5L", "'5L' is neither"},
      {"0 0 15W * *", "'15W' is neither"},
      {"@reboot", "'@reboot' is none of @hourly"},
      {"@every 5m", "give an interval"},
      {"99999999999999999999 * * * *", "is neither a number nor *"},
      {std::string("\x01 * * * *", 9), "'?' is neither"},
  };
  for (const auto& [text, message] : cases) {
    const absl::StatusOr<CronExpression> parsed = CronExpression::Parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(message)) << text;
  }
  EXPECT_THAT(std::string(CronExpression::Parse(std::string(257, '*')).status().message()),
              HasSubstr("is 257 bytes long; at most 256 are allowed"));
}

TEST(CronTest, ASkippedTimeMeansTheFirstInstantAfterTheGap) {
  // Berlin's clocks go from 02:00 to 03:00 at 01:00Z on 29 March 2026.
  EXPECT_THAT(Following("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 3),
              ElementsAre("2026-03-28T01:30Z", "2026-03-29T01:00Z", "2026-03-30T00:30Z"));
  EXPECT_THAT(Following("*/10 2 * * *", "Europe/Berlin", "2026-03-28T01:50:00Z", 2),
              ElementsAre("2026-03-29T01:00Z", "2026-03-30T00:00Z"));
  EXPECT_THAT(Following("0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2),
              ElementsAre("2026-03-29T01:00Z", "2026-03-30T00:00Z"));
}

TEST(CronTest, ARepeatedTimeRunsOnce) {
  // Berlin's clocks go from 03:00 to 02:00 at 01:00Z on 25 October 2026.
  EXPECT_THAT(Following("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
              ElementsAre("2026-10-25T00:30Z", "2026-10-26T01:30Z"));
  EXPECT_THAT(Following("0 1-4 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 4),
              ElementsAre("2026-10-24T23:00Z", "2026-10-25T00:00Z", "2026-10-25T02:00Z", "2026-10-25T03:00Z"));
}

TEST(CronTest, EveryHourGoesByElapsedTime) {
  EXPECT_THAT(Following("30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 3),
              ElementsAre("2026-03-29T00:30Z", "2026-03-29T01:30Z", "2026-03-29T02:30Z"));
  EXPECT_THAT(Following("30 * * * *", "Europe/Berlin", "2026-10-24T23:40:00Z", 3),
              ElementsAre("2026-10-25T00:30Z", "2026-10-25T01:30Z", "2026-10-25T02:30Z"));
  // Half an hour, in Lord Howe, at 15:30Z on 3 October 2026.
  EXPECT_THAT(Following("*/15 * * * *", "Australia/Lord_Howe", "2026-10-03T15:00:00Z", 4),
              ElementsAre("2026-10-03T15:15Z", "2026-10-03T15:30Z", "2026-10-03T15:45Z", "2026-10-03T16:00Z"));
}

TEST(CronTest, TheRulesOfAZoneHoldBeyondItsTable) {
  // Zone files list changes up to 2037 or less; what follows is a rule at their end.
  EXPECT_THAT(Following("0 12 * * *", "America/New_York", "2060-01-15T12:00:00Z", 1), ElementsAre("2060-01-15T17:00Z"));
  EXPECT_THAT(Following("0 12 * * *", "America/New_York", "2060-07-15T12:00:00Z", 1), ElementsAre("2060-07-15T16:00Z"));
}

TEST(CronTest, EndsWithTheCalendar) {
  EXPECT_EQ(Cron("@daily").Next(absl::InfiniteFuture(), absl::UTCTimeZone()), std::nullopt);
  EXPECT_EQ(Cron("@daily").Next(absl::InfinitePast(), absl::UTCTimeZone()), std::nullopt);
  EXPECT_EQ(Cron("@hourly").Next(absl::InfiniteFuture(), absl::UTCTimeZone()), std::nullopt);
}

TEST(TimeZoneTest, NamesAreFilesOfTheDatabaseAlone) {
  EXPECT_TRUE(LoadZone("UTC").ok());
  EXPECT_TRUE(LoadZone("America/Argentina/Buenos_Aires").ok());
  EXPECT_TRUE(LoadZone("Etc/GMT+5").ok());
  for (const char* name :
       {"", "/etc/passwd", "../../etc/passwd", "Europe/../../../../etc/passwd", "file:x", "localtime", "right/UTC",
        "Europe", "Europe/Nowhere", "europe/berlin", "zone.tab", "Fixed/UTC+01:00:00"}) {
    EXPECT_EQ(LoadZone(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_THAT(std::string(LoadZone("Mars/Olympus").status().message()),
              HasSubstr("'Mars/Olympus' is not in the daemon's time zone database"));
}

// --- Random expressions ---------------------------------------------------------------------------------------------

using Generator = std::mt19937;
int Pick(Generator& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

std::string RandomTerm(Generator& random, int min, int max) {
  const int a = Pick(random, min, max), b = Pick(random, a, max);
  switch (Pick(random, 0, 4)) {
    case 0:
      return absl::StrCat(a, "-", b);
    case 1:
      return absl::StrCat("*/", Pick(random, 1, std::min(max - min, 25)));
    case 2:
      return absl::StrCat(a, "-", b, "/", Pick(random, 1, std::min(max - min, 7)));
    default:
      return absl::StrCat(a);
  }
}

std::string RandomField(Generator& random, int min, int max, int percent_any) {
  if (Pick(random, 1, 100) <= percent_any) return "*";
  std::vector<std::string> terms;
  for (int n = Pick(random, 1, 3); n > 0; --n) terms.push_back(RandomTerm(random, min, max));
  return absl::StrJoin(terms, ",");
}

std::string RandomExpression(Generator& random) {
  const std::string month_day = Pick(random, 0, 9) == 0 ? "L" : RandomField(random, 1, 31, 60);
  return absl::StrCat(RandomField(random, 0, 59, 20), " ", RandomField(random, 0, 23, 30), " ", month_day, " ",
                      RandomField(random, 1, 12, 70), " ", RandomField(random, 0, 7, 60));
}

TEST(CronFuzzTest, RandomTextIsRefusedOrMakesSense) {
  Generator random(20261129);
  constexpr char kAlphabet[] = "0123456789*/,-? \t@LlWw#abcdefjmnorstuyAFMNS%\\.:+\x80\xff\0";
  const absl::Time now = At("2026-11-29T12:34:56Z");
  const absl::TimeZone zone = Zone("Europe/Berlin");
  int accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string text;
    if (i % 2 == 0) {
      for (int n = Pick(random, 0, 40); n > 0; --n) text += kAlphabet[Pick(random, 0, sizeof kAlphabet - 2)];
    } else {
      // A sound expression with some bytes changed gets further into the parser.
      text = RandomExpression(random);
      for (int n = Pick(random, 0, 2); n > 0; --n) {
        text[static_cast<size_t>(Pick(random, 0, static_cast<int>(text.size()) - 1))] =
            kAlphabet[Pick(random, 0, sizeof kAlphabet - 2)];
      }
    }
    const absl::StatusOr<CronExpression> parsed = CronExpression::Parse(text);
    if (!parsed.ok()) {
      ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
      ASSERT_FALSE(parsed.status().message().empty());
      continue;
    }
    ++accepted;
    const std::optional<absl::Time> next = parsed->Next(now, zone);
    ASSERT_TRUE(next.has_value()) << text;
    ASSERT_GT(*next, now) << text;
    ASSERT_LT(*next, now + absl::Hours(24 * 366 * 9)) << text;
  }
  EXPECT_GT(accepted, 15'000) << "the generator reaches the other half of the code";
}

TEST(CronFuzzTest, LongListsAreBounded) {
  std::string text = "0";
  while (text.size() < 240) text += ",0";
  EXPECT_FALSE(CronExpression::Parse(text + " * * * *").ok()) << "over 64 terms";
  text.resize(127);
  EXPECT_TRUE(CronExpression::Parse(text + " * * * *").ok()) << "64 terms";
}

// Every minute of two years in one zone, with what its local clock shows.
struct Walk {
  struct Minute {
    absl::Time at;
    absl::CivilMinute local;
    bool repeated;    // The clock has shown this before.
    int skipped = 0;  // So many minutes were skipped right before it.
  };
  std::vector<Minute> minutes;

  explicit Walk(const absl::TimeZone& zone) {
    const absl::Time begin = At("2026-01-01T00:00:00Z");
    absl::CivilMinute highest = absl::CivilMinute(zone.At(begin).cs) - 1;
    for (absl::Time at = begin; at < begin + absl::Hours(24 * 731); at += absl::Minutes(1)) {
      const absl::CivilMinute local(zone.At(at).cs);
      const bool repeated = local <= highest;
      minutes.push_back({at, local, repeated, repeated ? 0 : static_cast<int>(local - highest) - 1});
      highest = std::max(highest, local);
    }
  }

  std::vector<absl::Time> InstantsOf(const CronExpression& cron) const {
    std::vector<absl::Time> instants;
    for (const Minute& minute : minutes) {
      bool fires = cron.Matches(minute.local) && (cron.every_hour() || !minute.repeated);
      for (int back = 1; back <= minute.skipped && !cron.every_hour(); ++back) {
        fires = fires || cron.Matches(minute.local - back);
      }
      if (fires) instants.push_back(minute.at);
    }
    return instants;
  }
};

class CronWalkTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CronWalkTest, NextAgreesWithEveryMinuteOfTwoYears) {
  const absl::TimeZone zone = Zone(GetParam());
  const Walk walk(zone);
  Generator random(static_cast<unsigned>(std::string(GetParam()).size()) * 7919);
  // What meets the hours of the changes, and what is random.
  std::vector<std::string> texts = {
      "* * * * *",  "*/5 * * * *",    "30 * * * *", "30 2 * * *",  "30 1 * * *",
      "15 2 * * *", "*/10 1-3 * * *", "0 2 * * *",  "* 0-3 * * 0", "59 1,2 * 3,4,10,11 SUN"};
  while (texts.size() < 30) {
    std::string text = RandomExpression(random);
    if (CronExpression::Parse(text).ok()) texts.push_back(std::move(text));
  }
  int64_t compared = 0;
  for (const std::string& text : texts) {
    const CronExpression cron = Cron(text);
    const std::vector<absl::Time> instants = walk.InstantsOf(cron);
    // All of the rare ones; of the frequent ones a sample, and all in the days when the clocks change.
    const size_t stride = std::max<size_t>(1, instants.size() / 3000);
    for (size_t i = 0; i + 1 < instants.size(); ++i) {
      const bool changes = zone.At(instants[i] - absl::Hours(4)).offset != zone.At(instants[i] + absl::Hours(4)).offset;
      if (i % stride != 0 && !changes) continue;
      ++compared;
      ASSERT_EQ(cron.Next(instants[i], zone), instants[i + 1]) << text << " after " << Show(instants[i]);
      ASSERT_EQ(cron.Next(instants[i + 1] - absl::Nanoseconds(1), zone), instants[i + 1]) << text;
    }
  }
  EXPECT_GT(compared, 20'000);
}

INSTANTIATE_TEST_SUITE_P(Zones, CronWalkTest,
                         ::testing::Values("Europe/Berlin", "America/New_York", "Australia/Lord_Howe",
                                           "America/St_Johns", "Africa/Casablanca", "Asia/Kolkata"),
                         [](const auto& zone) {
                           std::string name = zone.param;
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

}  // namespace
}  // namespace tenure
