// See engine_metrics.h. Layer: http. Thread-safe.
#include "server/http/engine_metrics.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tenure::http {

struct EngineMetrics::DatabaseGauges {
  explicit DatabaseGauges(Metrics& m) : metrics(m) {}

  // A gauge of one series that is absent while there is nothing to say.
  void Set(prometheus::Family<prometheus::Gauge>& family, const prometheus::Labels& labels,
           std::optional<double> value) {
    prometheus::Gauge*& gauge = series[{&family, labels}];
    if (value) {
      if (gauge == nullptr) gauge = &family.Add(labels);
      gauge->Set(*value);
    } else if (gauge != nullptr) {
      family.Remove(gauge);
      gauge = nullptr;
    }
  }

  void SetDatabase(const absl::StatusOr<store::DatabaseInfo>& info) {
    std::lock_guard lock(mutex);
    if (!info.ok()) {
      for (auto* family : {&metrics.db_oldest_transaction, &metrics.db_dead_tuples, &metrics.db_live_tuples,
                           &metrics.db_clock_difference}) {
        Set(*family, {}, std::nullopt);
      }
      for (auto& [key, gauge] : series) {
        const bool by_name = key.first == &metrics.db_table_dead_tuples || key.first == &metrics.db_table_live_tuples ||
                             key.first == &metrics.db_index_bytes || key.first == &metrics.db_index_surplus;
        if (by_name) Set(*key.first, key.second, std::nullopt);
      }
      return;
    }
    Set(metrics.db_oldest_transaction, {},
        absl::ToDoubleSeconds(info->oldest_transaction().value_or(absl::ZeroDuration())));
    Set(metrics.db_dead_tuples, {}, static_cast<double>(info->jobs().dead));
    Set(metrics.db_live_tuples, {}, static_cast<double>(info->jobs().live));
    for (const store::TableRows& table : info->tables) {
      Set(metrics.db_table_dead_tuples, {{"table", table.name}}, static_cast<double>(table.dead));
      Set(metrics.db_table_live_tuples, {{"table", table.name}}, static_cast<double>(table.live));
    }
    for (const store::IndexSize& index : info->indexes) {
      Set(metrics.db_index_bytes, {{"index", index.name}}, static_cast<double>(index.bytes));
      Set(metrics.db_index_surplus, {{"index", index.name}}, index.surplus());
    }
    Set(metrics.db_clock_difference, {}, absl::ToDoubleSeconds(info->clock_difference));
  }

  void SetBackground(const absl::StatusOr<std::vector<store::BackgroundRow>>& rows) {
    std::lock_guard lock(mutex);
    std::map<std::string, double> last;
    if (rows.ok()) {
      for (const store::BackgroundRow& row : *rows) {
        if (!row.last_success) continue;
        double& latest = last.try_emplace(row.name, 0).first->second;
        latest = std::max(latest, absl::ToDoubleSeconds(*row.last_success - absl::UnixEpoch()));
      }
    }
    for (const std::string& worker : workers) {
      if (!last.contains(worker)) Set(metrics.background_last_success, {{"worker", worker}}, std::nullopt);
    }
    workers.clear();
    for (const auto& [worker, seconds] : last) {
      Set(metrics.background_last_success, {{"worker", worker}}, seconds);
      workers.push_back(worker);
    }
  }

  Metrics& metrics;
  std::mutex mutex;
  std::optional<Clock::TimePoint> asked;
  std::vector<std::string> workers;
  std::map<std::pair<prometheus::Family<prometheus::Gauge>*, prometheus::Labels>, prometheus::Gauge*> series;
};

EngineMetrics::EngineMetrics(engine::Engine& engine, Clock& clock, Metrics& metrics, absl::Duration database_interval)
    : engine_(engine),
      clock_(clock),
      metrics_(metrics),
      database_interval_(database_interval),
      queues_(metrics),
      database_(std::make_shared<DatabaseGauges>(metrics)) {}

EngineMetrics::~EngineMetrics() = default;

void EngineMetrics::Refresh() {
  queues_.Update(engine_.Snapshot());
  metrics_.event_lag.Add({}).Set(absl::ToDoubleSeconds(engine_.health().event_lag));
  {
    std::lock_guard lock(database_->mutex);
    const Clock::TimePoint now = clock_.Now();
    if (database_->asked && now - *database_->asked < absl::ToChronoNanoseconds(database_interval_)) return;
    database_->asked = now;
  }
  engine_.Inspect([gauges = database_](absl::StatusOr<store::DatabaseInfo> info) { gauges->SetDatabase(info); });
  engine_.ListBackground(
      [gauges = database_](absl::StatusOr<std::vector<store::BackgroundRow>> rows) { gauges->SetBackground(rows); });
}

}  // namespace tenure::http
