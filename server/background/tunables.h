// What can be tuned in background workers: each worker's file declares its tunables in a table, so that configuration,
// validation and documentation see the same names, ranges, units and defaults. Layer: background. Values: Set
// everything before the supervisor starts; reading is then thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tenure::background {

enum class TunableUnit { kRows, kDays, kDuration, kPercent, kMebibytes };

// One tunable. Values are in its unit, microseconds for kDuration.
struct Tunable {
  std::string_view name;  // "<worker>.<name>", lower case.
  std::string_view help;
  TunableUnit unit = TunableUnit::kRows;
  int64_t default_value = 0;
  int64_t min = 0;
  int64_t max = 0;
};

inline constexpr int64_t kMillisecond = 1'000;  // In microseconds, for tables of tunables.
inline constexpr int64_t kSecond = 1'000'000;
inline constexpr int64_t kMinute = 60 * kSecond;
inline constexpr int64_t kHour = 60 * kMinute;

// "500 rows", "7 days", "1s": for people.
std::string FormatTunable(TunableUnit unit, int64_t value);
// "rows", "days", "duration", "percent", "MiB".
std::string_view UnitName(TunableUnit unit);
// The environment variable: promoter.batch -> TENURE_PROMOTER_BATCH.
std::string EnvironmentName(std::string_view tunable);

class Tunables {
 public:
  // All at their defaults. The tables that `specs` point into must outlive this object.
  explicit Tunables(std::span<const Tunable> specs);

  // All take a whole number, but durations a number with its unit (500ms, 1m30s). INVALID_ARGUMENT that names the
  // tunable and its range; for an unknown name, the known ones. Nothing is changed then.
  absl::Status Set(std::string_view name, std::string_view value);

  // The value; `name` must be declared with that unit (anything else is a mistake of the program and aborts).
  int64_t Count(std::string_view name) const;
  absl::Duration Duration(std::string_view name) const;

  struct Entry {
    Tunable spec;
    int64_t value = 0;
  };
  // All of them, by name.
  std::vector<Entry> List() const;

 private:
  const Entry& Find(std::string_view name, bool duration) const;

  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace tenure::background
