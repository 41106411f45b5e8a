// The table of background workers against the folder, the selection of workers, and their tunables. Layer: tests.
#include "server/background/registry.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Names(const std::vector<WorkerEntry>& entries) {
  std::vector<std::string> names;
  for (const WorkerEntry& entry : entries) names.emplace_back(entry.name);
  return names;
}

TEST(RegistryTest, TheTableIsTheFolder) {
  std::set<std::string> files, table;
  const std::string suffix = "_worker.cc";
  for (const auto& file : std::filesystem::directory_iterator(TENURE_SOURCE_DIR "/server/background")) {
    std::string name = file.path().filename();
    if (!name.ends_with(suffix)) continue;
    name.resize(name.size() - suffix.size());
    std::replace(name.begin(), name.end(), '_', '-');
    files.insert(name);
  }
  for (const WorkerEntry& entry : AllWorkers()) {
    EXPECT_TRUE(table.emplace(entry.name).second) << entry.name << " is there twice";
    EXPECT_FALSE(entry.help.empty()) << entry.name;
    EXPECT_TRUE(entry.make) << entry.name;
  }
  EXPECT_EQ(files, table);
}

TEST(RegistryTest, EveryTunableIsSound) {
  std::set<std::string> names;
  for (const WorkerEntry& entry : AllWorkers()) {
    for (const Tunable& tunable : entry.tunables) {
      EXPECT_TRUE(names.emplace(tunable.name).second) << tunable.name << " is there twice";
      EXPECT_EQ(tunable.name.substr(0, entry.name.size() + 1), std::string(entry.name) + ".");
      EXPECT_FALSE(tunable.help.empty()) << tunable.name;
      EXPECT_LE(tunable.min, tunable.default_value) << tunable.name;
      EXPECT_LE(tunable.default_value, tunable.max) << tunable.name;
    }
  }
  EXPECT_EQ(DefaultTunables().List().size(), names.size());
}

TEST(RegistryTest, AllAndNone) {
  EXPECT_EQ(SelectWorkers("all")->size(), AllWorkers().size());
  EXPECT_THAT(*SelectWorkers("none"), IsEmpty());
  EXPECT_THAT(*SelectWorkers(""), IsEmpty());
  EXPECT_THAT(*SelectWorkers("  "), IsEmpty());
}

TEST(RegistryTest, NamesComeOnceAndInTheTablesOrder) {
  EXPECT_THAT(Names(*SelectWorkers("stats, reaper,stats")), ElementsAre("reaper", "stats"));
}

TEST(RegistryTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  for (const char* selection : {"repaer", "reaper,repaer", "reaper,", "all,reaper", "none,reaper", "Reaper"}) {
    const auto selected = SelectWorkers(selection);
    ASSERT_EQ(selected.status().code(), absl::StatusCode::kInvalidArgument) << selection;
    for (const WorkerEntry& entry : AllWorkers()) {
      EXPECT_THAT(std::string(selected.status().message()), HasSubstr(std::string(entry.name)));
    }
    EXPECT_EQ(DetailsOf(selected.status()).metadata["field"], "background");
  }
}

TEST(TunablesTest, DefaultsAndValues) {
  Tunables tunables = DefaultTunables();
  EXPECT_EQ(tunables.Count("retention.history_days"), 7);
  EXPECT_EQ(tunables.Count("retention.dead_letter_days"), 30);
  EXPECT_EQ(tunables.Duration("reaper.interval"), absl::Seconds(1));
  EXPECT_EQ(tunables.Set("promoter.batch", "500"), absl::OkStatus());
  EXPECT_EQ(tunables.Count("promoter.batch"), 500);
  EXPECT_EQ(tunables.Set("reaper.interval", "1m"), absl::OkStatus());
  EXPECT_EQ(tunables.Duration("reaper.interval"), absl::Minutes(1));
}

TEST(TunablesTest, ABadValueNamesTheTunableAndItsRangeAndChangesNothing) {
  Tunables tunables = DefaultTunables();
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"promoter.batch", "0"},    {"promoter.batch", "10001"},     {"promoter.batch", "many"},
      {"promoter.batch", ""},     {"promoter.batch", "1.5"},       {"reaper.interval", "1"},
      {"reaper.interval", "2m"},  {"reaper.interval", "1ms"},      {"reaper.interval", "-1s"},
      {"reaper.interval", "inf"}, {"retention.history_days", "7d"}};
  for (const auto& [name, value] : bad) {
    const absl::Status status = tunables.Set(name, value);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << "=" << value;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    EXPECT_THAT(std::string(status.message()), HasSubstr("from 1")) << "the range";
  }
  EXPECT_EQ(tunables.Count("promoter.batch"), 1000);
  EXPECT_EQ(tunables.Duration("reaper.interval"), absl::Seconds(1));
}

TEST(TunablesTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const absl::Status status = DefaultTunables().Set("promoter.bacth", "5");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("promoter.batch"));
}

TEST(TunablesTest, NamesForTheEnvironmentAndForPeople) {
  EXPECT_EQ(EnvironmentName("promoter.batch"), "TENURE_PROMOTER_BATCH");
  EXPECT_EQ(EnvironmentName("event-log.max_age"), "TENURE_EVENT_LOG_MAX_AGE");
  EXPECT_EQ(FormatTunable(TunableUnit::kDuration, 1500 * kMillisecond), "1.5s");
  EXPECT_EQ(FormatTunable(TunableUnit::kDays, 1), "1 day");
  EXPECT_EQ(FormatTunable(TunableUnit::kRows, 500), "500 rows");
}

}  // namespace
}  // namespace tenure::background
