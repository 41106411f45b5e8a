// Figures: see the header. Layer: tests (benchmark).
#include "figures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tenure::bench {

void Figures::Set(std::string_view name, double value) {
  for (auto& [known, old] : all_) {
    if (known == name) {
      old = value;
      return;
    }
  }
  all_.emplace_back(name, value);
}

std::optional<double> Figures::Get(std::string_view name) const {
  for (const auto& [known, value] : all_) {
    if (known == name) return value;
  }
  return std::nullopt;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double Percentile(std::vector<double> values, double percent) {
  const auto rank = static_cast<size_t>(std::ceil(percent / 100 * static_cast<double>(values.size())));
  const size_t index = std::clamp<size_t>(rank, 1, values.size()) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index), values.end());
  return values[index];
}

std::optional<Spread> SpreadOf(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return Spread{Median(values), *least, *most};
}

}  // namespace tenure::bench
