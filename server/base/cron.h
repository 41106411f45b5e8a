// Cron expressions: five fields (minute, hour, day of month, month, day of week) or an @-name, and the instants that
// they mean in a time zone. Layer: base. Thread-safe: values only; never throws.
//
// The rules, which docs/howto/schedules.md states for users:
//   - Days: with both day fields restricted a day matches if either matches; "*" and "?" restrict nothing.
//   - A local time that a change of the clocks skips (spring) means the first instant after the gap. Several skipped
//     times are one such instant.
//   - A local time that happens twice (autumn) means the first of the two.
//   - An expression that allows every hour goes by elapsed time instead: it has no instant for skipped times, whose
//     hours did not take place, and both for repeated ones. So "every 15 minutes" stays every 15 minutes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"

namespace tenure {

class CronExpression {
 public:
  static constexpr size_t kMaxBytes = 256;

  // INVALID_ARGUMENT (without reason or field, which the caller knows) whose message names the part that is wrong and
  // the rule. Takes time linear in the text. Refuses expressions that never match, such as "0 0 30 2 *".
  static absl::StatusOr<CronExpression> Parse(std::string_view text);

  // The first instant after `after` (exclusive), on a minute of `zone`. nullopt only beyond the year 9000.
  std::optional<absl::Time> Next(absl::Time after, const absl::TimeZone& zone) const;

  // True if the local minute is one of those that the fields allow, whatever the clocks do.
  bool Matches(absl::CivilMinute minute) const;
  // True if it goes by elapsed time, see above.
  bool every_hour() const { return hours_ == kAllHours; }

 private:
  static constexpr uint32_t kAllHours = (uint32_t{1} << 24) - 1;

  CronExpression() = default;
  bool MatchesDay(absl::CivilDay day) const;
  // The first matching local minute at or after `minute`.
  std::optional<absl::CivilMinute> NextLocal(absl::CivilMinute minute) const;
  std::optional<absl::Time> NextElapsed(absl::Time after, const absl::TimeZone& zone) const;

  uint64_t minutes_ = 0;     // Bit n: minute n.
  uint32_t hours_ = 0;       // Bit n: hour n.
  uint32_t month_days_ = 0;  // Bit n: day n, from 1.
  uint32_t months_ = 0;      // Bit n: month n, from 1.
  uint32_t week_days_ = 0;   // Bit n: day n, Sunday is 0.
  bool last_day_ = false;    // L: the last day of the month.
  bool any_month_day_ = false;
  bool any_week_day_ = false;
};

}  // namespace tenure
