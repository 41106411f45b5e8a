// The report: see the header. Layer: tests (benchmark).
#include "report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace tenure::bench {
namespace {

std::vector<double> ValuesOf(const ContestantRuns& contestant, const std::string& figure) {
  std::vector<double> values;
  for (const Figures& run : contestant.runs) {
    if (const auto value = run.Get(figure)) values.push_back(*value);
  }
  return values;
}

// "1,234 (1,100–1,300)", or a dash for what was not measured.
std::string Cell(const ContestantRuns& contestant, const Column& column) {
  const auto spread = SpreadOf(ValuesOf(contestant, column.figure));
  if (!spread) return "–";
  std::string text = Thousands(spread->median, column.decimals);
  if (column.spread && contestant.runs.size() > 1) {
    absl::StrAppend(&text, " (", Thousands(spread->min, column.decimals), "–", Thousands(spread->max, column.decimals),
                    ")");
  }
  return text;
}

std::string RatioCell(const ScenarioRuns& runs, size_t index) {
  if (index == 0) return "1";
  const auto ratio = RatioOf(runs.contestants[0], runs.contestants[index], runs.scenario->columns[0].figure);
  if (!ratio) return "–";
  std::string text = absl::StrFormat("%.2f", ratio->median);
  if (runs.contestants[index].runs.size() > 1) absl::StrAppendFormat(&text, " (%.2f–%.2f)", ratio->min, ratio->max);
  return text;
}

// The contestant of that name; one without runs if it did not take part.
const ContestantRuns& FirstOf(const ScenarioRuns& runs, const std::string& name) {
  static const auto* const kNone = new ContestantRuns;
  const auto found = std::find_if(runs.contestants.begin(), runs.contestants.end(),
                                  [&](const ContestantRuns& contestant) { return contestant.name == name; });
  return found == runs.contestants.end() ? *kNone : *found;
}

std::string TitleOf(const Scenario& scenario, const std::string& figure) {
  for (const Column& column : scenario.columns) {
    if (column.figure == figure) return column.title;
  }
  return figure;
}

}  // namespace

std::string Thousands(double value, int decimals) {
  std::string text = absl::StrFormat("%.*f", decimals, std::abs(value));
  size_t at = text.find('.');
  if (at == std::string::npos) at = text.size();
  while (at > 3) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  const bool zero = text.find_first_of("123456789") == std::string::npos;
  return value < 0 && !zero ? absl::StrCat("-", text) : text;
}

std::optional<Spread> RatioOf(const ContestantRuns& first, const ContestantRuns& other, const std::string& figure) {
  std::vector<double> ratios;
  for (size_t round = 0; round < std::min(first.runs.size(), other.runs.size()); ++round) {
    const auto mine = first.runs[round].Get(figure), its = other.runs[round].Get(figure);
    if (mine && its && *its != 0) ratios.push_back(*mine / *its);
  }
  return SpreadOf(ratios);
}

std::vector<std::string> GoalLines(const ScenarioRuns& runs, const Goal& goal) {
  const ContestantRuns& mine = goal.contestant.empty() ? runs.contestants[0] : FirstOf(runs, goal.contestant);
  std::vector<std::string> lines;
  const auto judge = [&](const std::optional<Spread>& reached, const std::string& of) {
    if (!reached) return;
    const bool met = goal.at_least ? reached->median >= goal.limit : reached->median <= goal.limit;
    lines.push_back(absl::StrFormat("%s: %s at %s %.2f%s: %.2f, %s", mine.name, TitleOf(*runs.scenario, goal.figure),
                                    goal.at_least ? "least" : "most", goal.limit, of, reached->median,
                                    met ? "reached" : "**missed**"));
  };
  if (goal.against.empty()) judge(SpreadOf(ValuesOf(mine, goal.figure)), "");
  for (const ContestantRuns& other : runs.contestants) {
    if (goal.against.empty() || !absl::StartsWith(other.name, goal.against)) continue;
    judge(RatioOf(mine, other, goal.figure), " of " + other.name);
  }
  return lines;
}

std::string MarkdownHead(const Environment& environment) {
  std::string text = "| | |\n| --- | --- |\n";
  for (const auto& [name, value] : environment) absl::StrAppend(&text, "| ", name, " | ", value, " |\n");
  return text;
}

std::string MarkdownSection(const ScenarioRuns& runs) {
  const Scenario& scenario = *runs.scenario;
  std::string text = absl::StrCat("## ", scenario.name, "\n\n", scenario.what, "\n\n| |");
  std::string rule = "\n| --- |";
  for (size_t i = 0; i < scenario.columns.size(); ++i) {
    absl::StrAppend(&text, " ", scenario.columns[i].title, " |");
    absl::StrAppend(&rule, " ---: |");
    if (i == 0 && runs.contestants.size() > 1) {
      absl::StrAppend(&text, " ", runs.contestants[0].name, " ÷ this |");
      absl::StrAppend(&rule, " ---: |");
    }
  }
  absl::StrAppend(&text, rule, "\n");
  for (size_t row = 0; row < runs.contestants.size(); ++row) {
    absl::StrAppend(&text, "| ", runs.contestants[row].name, " |");
    for (size_t i = 0; i < scenario.columns.size(); ++i) {
      absl::StrAppend(&text, " ", Cell(runs.contestants[row], scenario.columns[i]), " |");
      if (i == 0 && runs.contestants.size() > 1) absl::StrAppend(&text, " ", RatioCell(runs, row), " |");
    }
    absl::StrAppend(&text, "\n");
  }
  std::string list;
  for (const Goal& goal : scenario.goals) {
    for (const std::string& line : GoalLines(runs, goal)) absl::StrAppend(&list, "- Goal: ", line, "\n");
  }
  for (const ContestantRuns& contestant : runs.contestants) {
    if (contestant.runs.empty() || contestant.runs.back().note.empty()) continue;
    absl::StrAppend(&list, "- ", contestant.name, ": ", contestant.runs.back().note, "\n");
  }
  for (const auto& [peer, reason] : runs.skipped) absl::StrAppend(&list, "- ", peer, ": skipped: ", reason, "\n");
  return list.empty() ? text : absl::StrCat(text, "\n", list);
}

std::string Json(const Environment& environment, const std::vector<ScenarioRuns>& all) {
  nlohmann::ordered_json root;
  for (const auto& [name, value] : environment) root["environment"][name] = value;
  root["scenarios"] = nlohmann::ordered_json::array();
  for (const ScenarioRuns& runs : all) {
    nlohmann::ordered_json scenario;
    scenario["name"] = runs.scenario->name;
    scenario["headline"] = runs.scenario->columns[0].figure;
    for (const ContestantRuns& contestant : runs.contestants) {
      nlohmann::ordered_json entry;
      entry["name"] = contestant.name;
      if (&contestant != &runs.contestants[0]) {
        if (const auto ratio = RatioOf(runs.contestants[0], contestant, runs.scenario->columns[0].figure)) {
          entry["ratio"] = {{"median", ratio->median}, {"min", ratio->min}, {"max", ratio->max}};
        }
      }
      for (const Figures& run : contestant.runs) {
        nlohmann::ordered_json figures;
        for (const auto& [name, value] : run.all()) figures[name] = value;
        if (!run.note.empty()) figures["note"] = run.note;
        entry["runs"].push_back(std::move(figures));
      }
      scenario["contestants"].push_back(std::move(entry));
    }
    for (const Goal& goal : runs.scenario->goals) {
      for (const std::string& line : GoalLines(runs, goal)) scenario["goals"].push_back(line);
    }
    for (const auto& [peer, reason] : runs.skipped) scenario["skipped"][peer] = reason;
    root["scenarios"].push_back(std::move(scenario));
  }
  return root.dump(2) + "\n";
}

}  // namespace tenure::bench
