// The benchmark's arithmetic and its report: medians, percentiles, ratios by round, goals, Markdown, JSON.
#include <gtest/gtest.h>
#include <unistd.h>

#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/bench/figures.h"
#include "tests/bench/measure.h"
#include "tests/bench/report.h"
#include "tests/bench/scenario.h"

namespace tenure::bench {
namespace {

Figures Run(double rate) {
  Figures figures;
  figures.Set("jobs_per_second", rate);
  return figures;
}

ContestantRuns Runs(const std::string& name, std::initializer_list<double> rates) {
  ContestantRuns runs{name, {}};
  for (const double rate : rates) runs.runs.push_back(Run(rate));
  return runs;
}

Scenario Drain() {
  return {.name = "drain",
          .what = "Jobs are drained.",
          .columns = {{"jobs_per_second", "jobs/s", 0, true}, {"wal_bytes_per_job", "WAL bytes per job"}},
          .contestants = {},
          .peer_scenario = "drain",
          .goals = {{.figure = "jobs_per_second", .against = "raw SQL", .limit = 0.7},
                    {.figure = "jobs_per_second", .against = "", .at_least = false, .limit = 100},
                    {.figure = "jobs_per_second", .against = "a peer", .limit = 2}}};
}

TEST(BenchFigures, LaterValuesReplaceEarlierOnesInPlace) {
  Figures figures;
  figures.Set("b", 1);
  figures.Set("a", 2);
  figures.Set("b", 3);
  ASSERT_EQ(figures.all().size(), 2u);
  EXPECT_EQ(figures.all()[0].first, "b");
  EXPECT_EQ(figures.Get("b"), 3);
  EXPECT_EQ(figures.Get("c"), std::nullopt);
}

TEST(BenchFigures, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({4, 1, 2, 100}), 3);
}

TEST(BenchFigures, PercentileIsTheNearestRank) {
  std::vector<double> hundred;
  for (int i = 100; i >= 1; --i) hundred.push_back(i);
  EXPECT_EQ(Percentile(hundred, 50), 50);
  EXPECT_EQ(Percentile(hundred, 99), 99);
  EXPECT_EQ(Percentile(hundred, 99.5), 100);
  EXPECT_EQ(Percentile(hundred, 100), 100);
  EXPECT_EQ(Percentile({7}, 1), 7);
  EXPECT_EQ(Percentile({1, 2}, 50), 1);
}

TEST(BenchFigures, SpreadHasMedianLeastAndMost) {
  const auto spread = SpreadOf({5, 1, 3});
  ASSERT_TRUE(spread.has_value());
  EXPECT_EQ(spread->median, 3);
  EXPECT_EQ(spread->min, 1);
  EXPECT_EQ(spread->max, 5);
  EXPECT_FALSE(SpreadOf({}).has_value());
}

TEST(BenchReport, NumbersAreWrittenWithThousands) {
  EXPECT_EQ(Thousands(0, 0), "0");
  EXPECT_EQ(Thousands(999.6, 0), "1,000");
  EXPECT_EQ(Thousands(1234567.891, 2), "1,234,567.89");
  EXPECT_EQ(Thousands(0.00456, 4), "0.0046");
  EXPECT_EQ(Thousands(-1234, 0), "-1,234");
  EXPECT_EQ(Thousands(-0.001, 1), "0.0");
}

// A slow round of the machine slows both, and must not show in the ratio.
TEST(BenchReport, RatiosAreThoseOfTheSameRound) {
  const auto ratio = RatioOf(Runs("Tenure", {100, 10, 60}), Runs("raw SQL", {200, 20, 100}), "jobs_per_second");
  ASSERT_TRUE(ratio.has_value());
  EXPECT_DOUBLE_EQ(ratio->median, 0.5);
  EXPECT_DOUBLE_EQ(ratio->min, 0.5);
  EXPECT_DOUBLE_EQ(ratio->max, 0.6);
  EXPECT_FALSE(RatioOf(Runs("Tenure", {1}), Runs("raw SQL", {1}), "start_latency_ms_p50").has_value());
  EXPECT_FALSE(RatioOf(Runs("Tenure", {1}), Runs("raw SQL", {0}), "jobs_per_second").has_value());
}

TEST(BenchReport, GoalsSayWhetherTheyAreReached) {
  using Lines = std::vector<std::string>;
  const Scenario scenario = Drain();
  const ScenarioRuns runs{&scenario, {Runs("Tenure", {80, 90}), Runs("raw SQL", {100, 100})}, {}};
  EXPECT_EQ(GoalLines(runs, scenario.goals[0]), Lines{"Tenure: jobs/s at least 0.70 of raw SQL: 0.85, reached"});
  EXPECT_EQ(GoalLines(runs, scenario.goals[1]), Lines{"Tenure: jobs/s at most 100.00: 85.00, reached"});
  EXPECT_EQ(GoalLines(runs, scenario.goals[2]), Lines{}) << "the peer did not take part";
  const ScenarioRuns slow{&scenario, {Runs("Tenure", {60}), Runs("raw SQL", {100})}, {}};
  EXPECT_EQ(GoalLines(slow, scenario.goals[0]), Lines{"Tenure: jobs/s at least 0.70 of raw SQL: 0.60, **missed**"});
  const ScenarioRuns modes{
      &scenario, {Runs("Tenure", {60}), Runs("a peer batched", {20}), Runs("a peer plain", {40})}, {}};
  EXPECT_EQ(GoalLines(modes, scenario.goals[2]),
            (Lines{"Tenure: jobs/s at least 2.00 of a peer batched: 3.00, reached",
                   "Tenure: jobs/s at least 2.00 of a peer plain: 1.50, **missed**"}));
  EXPECT_EQ(GoalLines(modes, {.figure = "jobs_per_second", .against = "", .limit = 1, .contestant = "nobody"}),
            Lines{});
}

TEST(BenchReport, MarkdownHasARowForEachContestant) {
  const Scenario scenario = Drain();
  ScenarioRuns runs{&scenario, {Runs("Tenure", {1000, 3000, 2000}), Runs("raw SQL", {4000, 4000, 4000})}, {}};
  runs.contestants[1].runs.back().note = "1 session";
  runs.skipped = {{"river", "go is not installed"}};
  EXPECT_EQ(MarkdownSection(runs),
            "## drain\n\n"
            "Jobs are drained.\n\n"
            "| | jobs/s | Tenure ÷ this | WAL bytes per job |\n"
            "| --- | ---: | ---: | ---: |\n"
            "| Tenure | 2,000 (1,000–3,000) | 1 | – |\n"
            "| raw SQL | 4,000 (4,000–4,000) | 0.50 (0.25–0.75) | – |\n\n"
            "- Goal: Tenure: jobs/s at least 0.70 of raw SQL: 0.50, **missed**\n"
            "- Goal: Tenure: jobs/s at most 100.00: 2000.00, **missed**\n"
            "- raw SQL: 1 session\n"
            "- river: skipped: go is not installed\n");
  EXPECT_EQ(MarkdownHead({{"Kernel", "Linux"}}), "| | |\n| --- | --- |\n| Kernel | Linux |\n");
}

TEST(BenchReport, JsonHasEveryRun) {
  const Scenario scenario = Drain();
  const ScenarioRuns runs{&scenario, {Runs("Tenure", {10, 30}), Runs("raw SQL", {20, 40})}, {{"river", "no go"}}};
  const auto json = nlohmann::json::parse(Json({{"Kernel", "Linux"}}, {runs}));
  EXPECT_EQ(json["environment"]["Kernel"], "Linux");
  const auto& drain = json["scenarios"][0];
  EXPECT_EQ(drain["name"], "drain");
  EXPECT_EQ(drain["contestants"][0]["runs"][1]["jobs_per_second"], 30);
  EXPECT_EQ(drain["contestants"][1]["ratio"]["median"], 0.625);
  EXPECT_FALSE(drain["contestants"][0].contains("ratio"));
  EXPECT_EQ(drain["skipped"]["river"], "no go");
}

TEST(BenchScenarios, EachHasANameOfItsOwnAndTenureFirst) {
  std::set<std::string> names;
  for (const Scenario& scenario : AllScenarios({})) {
    EXPECT_TRUE(names.insert(scenario.name).second) << scenario.name;
    EXPECT_FALSE(scenario.what.empty()) << scenario.name;
    ASSERT_FALSE(scenario.columns.empty()) << scenario.name;
    ASSERT_FALSE(scenario.contestants.empty()) << scenario.name;
    EXPECT_EQ(scenario.contestants[0].name, "Tenure") << scenario.name;
    for (const Goal& goal : scenario.goals) EXPECT_FALSE(goal.figure.empty()) << scenario.name;
  }
  EXPECT_EQ(names, (std::set<std::string>{"backlog", "blocked", "drain", "enqueue", "fair", "groups", "heartbeat",
                                          "held-transaction", "keyed", "latency", "lifecycle", "many-queues", "parked",
                                          "single"}));
}

TEST(BenchMeasure, ReadsThisProcessFromProc) {
  const double before = OwnCpuSeconds();
  volatile double sum = 0;
  while (OwnCpuSeconds() - before < 0.05) sum = sum + 1;
  EXPECT_GE(CpuSecondsOf(getpid()), 0.04);
  EXPECT_GE(CpuSecondsOfGroup(getpgrp()), CpuSecondsOf(getpid()) - 0.02);
  EXPECT_GT(ResidentMiB(getpid()), 1);
  EXPECT_GE(PeakResidentMiB(getpid()), ResidentMiB(getpid()) / 2);
  EXPECT_EQ(CpuSecondsOf(-1), 0);
}

}  // namespace
}  // namespace tenure::bench
