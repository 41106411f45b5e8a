// How keys and queues stand, as admission_limits.sql, admission_held.sql and admission_queue.sql tell. Layer:
// store/postgres. Values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/postgres/connection.h"
#include "server/store/postgres/result.h"

namespace tenure::store::postgres {

struct GateRow {
  std::optional<int64_t> max;
  int64_t held = 0;  // Counted up to max.
  std::optional<int64_t> rate_interval_us;
  int64_t rate_burst = 1;
  int64_t next_in_us = 0;
  int64_t paused_us = 0;

  // How many may pass now, at most `most`.
  int64_t Allowance(int64_t most) const;
  // Until when time alone holds somebody up, once `used` have passed; nullopt: it is not time.
  std::optional<absl::Duration> Later(int64_t used) const;
};

GateRow ReadGate(const Result& rows, int row);
// `deep`: jobs of the queue may hold one of the keys and wait at a later gate. True is always right, and costs more.
absl::StatusOr<std::map<std::string, GateRow>> ReadKeys(Transaction& tx, int32_t queue,
                                                        const std::vector<std::string>& keys, bool deep = true);

}  // namespace tenure::store::postgres
