// The slots of a schedule: which instants its cron expression or interval means, and which of those that have passed
// still run. Layer: store (pure rules over its structs). Thread-safe: values only.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/cron.h"
#include "server/store/schedules.h"

namespace tenure::store {

inline constexpr absl::Duration kMinInterval = absl::Seconds(1);
inline constexpr absl::Duration kMaxInterval = absl::Hours(24 * 366);

class Timing {
 public:
  // INVALID_ARGUMENT / INVALID_FIELD naming cron, time_zone or interval, below `path` ("schedule.").
  static absl::StatusOr<Timing> Make(const ScheduleTiming& timing, std::string_view path = "");

  // The first slot after `after` (exclusive). nullopt only beyond the year 9000.
  std::optional<absl::Time> Next(absl::Time after) const;

  struct Plan {
    std::vector<absl::Time> run;  // Ascending.
    int64_t missed = 0;           // Left out. A lower bound if there are over 100,000.
    absl::Time next;              // After now.
  };
  // The slots from `next` (one of them, due) to `now`. Those at most `on_time` late all run, and of older ones so many
  // that the last `catch_up` run in all; at most kMaxRun.
  // Under an overlap policy other than kAllow only the last of these runs, and the others count as missed.
  Plan Due(absl::Time next, absl::Time now, absl::Duration on_time, int catch_up, Overlap overlap) const;

  static constexpr int kMaxRun = 1000;

 private:
  Timing() = default;

  std::optional<CronExpression> cron_;
  absl::TimeZone zone_;
  absl::Duration interval_;
  absl::Time anchor_;
};

}  // namespace tenure::store
