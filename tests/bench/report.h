// From runs to what is read: a Markdown section for each scenario, and JSON with every single run. Layer: tests
// (benchmark). Pure functions.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenario.h"

namespace tenure::bench {

struct ContestantRuns {
  std::string name;
  std::vector<Figures> runs;  // One a round.
};

struct ScenarioRuns {
  const Scenario* scenario = nullptr;
  std::vector<ContestantRuns> contestants;                        // Tenure first.
  std::vector<std::pair<std::string, std::string>> skipped = {};  // Peers, and why.
};

// Name and value of what the runs were made on: processor, PostgreSQL, versions, settings.
using Environment = std::vector<std::pair<std::string, std::string>>;

// "1,234.5".
std::string Thousands(double value, int decimals);

// How many times the other's `figure` the first contestant's is, in the runs of each round. nullopt if one of them
// lacks the figure.
std::optional<Spread> RatioOf(const ContestantRuns& first, const ContestantRuns& other, const std::string& figure);

// "Tenure: jobs/s at least 0.70 of raw SQL: 0.81, reached", for each contestant that the goal is against; nothing for
// one whose figures are not there.
std::vector<std::string> GoalLines(const ScenarioRuns& runs, const Goal& goal);

std::string MarkdownHead(const Environment& environment);
std::string MarkdownSection(const ScenarioRuns& runs);
std::string Json(const Environment& environment, const std::vector<ScenarioRuns>& all);

}  // namespace tenure::bench
