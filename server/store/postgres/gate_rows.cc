#include "server/store/postgres/gate_rows.h"

#include <algorithm>

#include "server/base/status.h"
#include "server/store/admission_choice.h"
#include "statements.sql.h"

namespace tenure::store::postgres {

int64_t GateRow::Allowance(int64_t most) const {
  if (paused_us > 0) return 0;
  int64_t allowance = most;
  if (max) allowance = std::min(allowance, std::max<int64_t>(0, *max - held));
  if (rate_interval_us) {
    allowance = std::min(allowance, RateAllowance(*rate_interval_us, rate_burst, next_in_us));
  }
  return allowance;
}

std::optional<absl::Duration> GateRow::Later(int64_t used) const {
  if (paused_us > 0) return absl::Microseconds(paused_us);
  if (max && *max - held - used <= 0) return std::nullopt;
  if (!rate_interval_us) return std::nullopt;
  const int64_t wait = RateWait(*rate_interval_us, rate_burst, next_in_us, used);
  if (wait == 0) return std::nullopt;
  return absl::Microseconds(wait);
}

GateRow ReadGate(const Result& rows, int row) {
  GateRow gate;
  const int max = rows.Column("max_leased"), interval = rows.Column("rate_interval_us");
  if (!rows.IsNull(row, max)) gate.max = rows.Int(row, max);
  gate.held = rows.Int(row, rows.Column("held"));
  if (!rows.IsNull(row, interval)) gate.rate_interval_us = rows.Int(row, interval);
  gate.rate_burst = std::max<int64_t>(1, rows.Int(row, rows.Column("rate_burst")));
  // Long past where only one of the two is set.
  auto micros = [&](const char* column) {
    const double seconds = rows.Double(row, rows.Column(column));
    return seconds > 0 ? static_cast<int64_t>(seconds * 1e6) : 0;
  };
  gate.next_in_us = micros("next_in");
  gate.paused_us = micros("paused_for");
  return gate;
}

absl::StatusOr<std::map<std::string, GateRow>> ReadKeys(Transaction& tx, int32_t queue,
                                                        const std::vector<std::string>& keys) {
  TENURE_ASSIGN_OR_RETURN(const Result rows, tx.Run(sql::kAdmissionKeys, Params().Add(queue).AddArray(keys)));
  std::map<std::string, GateRow> gates;
  for (int row = 0; row < rows.rows(); ++row) gates.emplace(rows.Text(row, 0), ReadGate(rows, row));
  return gates;
}

}  // namespace tenure::store::postgres
