// What a run measured, by name, and the statistics of several runs. Layer: tests (benchmark). Values; pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenure::bench {

// Named numbers in the order in which they were set. Units are part of the names: "seconds", "wal_bytes_per_job".
class Figures {
 public:
  // Replaces an earlier value of that name.
  void Set(std::string_view name, double value);
  std::optional<double> Get(std::string_view name) const;
  const std::vector<std::pair<std::string, double>>& all() const { return all_; }

  // What produced them, in words: a peer's settings, say.
  std::string note;

 private:
  std::vector<std::pair<std::string, double>> all_;
};

// The middle value, or the mean of the two in the middle. Requires at least one.
double Median(std::vector<double> values);
// The smallest value that at least `percent` of all do not exceed (nearest rank). 0 < percent <= 100; at least one
// value.
double Percentile(std::vector<double> values, double percent);

struct Spread {
  double median = 0, min = 0, max = 0;
};
// nullopt without values.
std::optional<Spread> SpreadOf(const std::vector<double>& values);

}  // namespace tenure::bench
