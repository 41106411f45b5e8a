#include "server/store/postgres/gate_rows.h"

#include <algorithm>
#include <set>
#include <utility>

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

namespace {

// What is left of a time; 0 where it is past, or not set.
int64_t Micros(const Result& rows, int row, const char* column) {
  const double seconds = rows.Double(row, rows.Column(column));
  return seconds > 0 ? static_cast<int64_t>(seconds * 1e6) : 0;
}

void ReadLimit(const Result& rows, int row, GateRow& gate) {
  const int max = rows.Column("max_leased"), interval = rows.Column("rate_interval_us");
  if (!rows.IsNull(row, max)) gate.max = rows.Int(row, max);
  if (!rows.IsNull(row, interval)) gate.rate_interval_us = rows.Int(row, interval);
  gate.rate_burst = std::max<int64_t>(1, rows.Int(row, rows.Column("rate_burst")));
}

void ReadPace(const Result& rows, int row, GateRow& gate) {
  gate.next_in_us = Micros(rows, row, "next_in");
  gate.paused_us = Micros(rows, row, "paused_for");
}

// Limits and paces of the keys. A key's own limit counts before that of the longest beginning.
absl::Status ReadLimits(Transaction& tx, int32_t queue, std::map<std::string, GateRow>& gates) {
  // Of admission_limits.sql.
  enum Sort { kOwn = 1, kPrefix = 2, kPace = 3 };
  TENURE_ASSIGN_OR_RETURN(const Result rows,
                          tx.Run(sql::kAdmissionLimits, Params().Add(queue).AddArray(gates, [](const auto& g) {
                            return std::string_view(g.first);
                          })));
  const int sort = rows.Column("row_sort"), key = rows.Column("key");
  std::set<std::string> own;
  std::map<std::string, int> prefixes;  // The row of each.
  for (int row = 0; row < rows.rows(); ++row) {
    const std::string name = rows.Text(row, key);
    switch (rows.Int(row, sort)) {
      case kOwn:
        own.insert(name);
        ReadLimit(rows, row, gates[name]);
        break;
      case kPrefix:
        prefixes.emplace(name, row);
        break;
      default:
        ReadPace(rows, row, gates[name]);
    }
  }
  if (prefixes.empty()) return absl::OkStatus();
  for (auto& [name, gate] : gates) {
    if (own.contains(name)) continue;
    const auto longest = std::max_element(prefixes.begin(), prefixes.end(), [&](const auto& a, const auto& b) {
      const auto fit = [&](const std::string& prefix) { return name.starts_with(prefix) ? prefix.size() + 1 : 0; };
      return fit(a.first) < fit(b.first);
    });
    if (name.starts_with(longest->first)) ReadLimit(rows, longest->second, gate);
  }
  return absl::OkStatus();
}

}  // namespace

GateRow ReadGate(const Result& rows, int row) {
  GateRow gate;
  ReadLimit(rows, row, gate);
  ReadPace(rows, row, gate);
  gate.held = rows.Int(row, rows.Column("held"));
  return gate;
}

absl::StatusOr<std::map<std::string, GateRow>> ReadKeys(Transaction& tx, int32_t queue,
                                                        const std::vector<std::string>& keys, bool deep) {
  std::map<std::string, GateRow> gates;
  for (const std::string& key : keys) gates[key];
  TENURE_RETURN_IF_ERROR(ReadLimits(tx, queue, gates));
  std::vector<std::pair<std::string, int64_t>> limited;
  for (const auto& [key, gate] : gates) {
    if (gate.max) limited.emplace_back(key, *gate.max);
  }
  if (limited.empty()) return gates;
  Params params;
  params.Add(queue)
      .AddArray(limited, [](const auto& l) { return std::string_view(l.first); })
      .AddArray(limited, [](const auto& l) { return static_cast<int32_t>(l.second); })
      .Add(deep);
  TENURE_ASSIGN_OR_RETURN(const Result rows, tx.Run(sql::kAdmissionHeld, params));
  for (int row = 0; row < rows.rows(); ++row) gates[rows.Text(row, 0)].held = rows.Int(row, 1);
  return gates;
}

}  // namespace tenure::store::postgres
