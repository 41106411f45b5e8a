// See queue_metrics.h. Layer: http. Thread-safe.
#include "server/http/queue_metrics.h"

#include <algorithm>

namespace tenure::http {
namespace {

struct Totals {
  store::QueueCounts counts;
  double oldest_seconds = 0;
  bool paused = false;
};

}  // namespace

QueueMetrics::Series QueueMetrics::Make(const std::string& label) {
  auto jobs = [&](const char* state) { return &metrics_.queue_jobs.Add({{"queue", label}, {"state", state}}); };
  return {.scheduled = jobs("scheduled"),
          .blocked = jobs("blocked"),
          .ready = jobs("ready"),
          .leased = jobs("leased"),
          .suspended = jobs("suspended"),
          .oldest = &metrics_.queue_oldest_ready_age.Add({{"queue", label}}),
          .paused = &metrics_.queue_paused.Add({{"queue", label}})};
}

void QueueMetrics::Remove(const Series& series) {
  for (auto* gauge : {series.scheduled, series.blocked, series.ready, series.leased, series.suspended}) {
    metrics_.queue_jobs.Remove(gauge);
  }
  metrics_.queue_oldest_ready_age.Remove(series.oldest);
  metrics_.queue_paused.Remove(series.paused);
}

void QueueMetrics::Update(const std::vector<engine::QueueInfo>& queues) {
  std::map<std::string, Totals> totals;
  for (const engine::QueueInfo& info : queues) {
    Totals& total = totals[metrics_.queue_labels().Label(info.queue.name)];
    total.counts.Add(info.counts);
    if (info.oldest_ready) {
      total.oldest_seconds = std::max(total.oldest_seconds, absl::ToDoubleSeconds(*info.oldest_ready));
    }
    total.paused = total.paused || info.queue.paused;
  }

  std::lock_guard lock(mutex_);
  for (auto it = series_.begin(); it != series_.end();) {
    if (totals.contains(it->first)) {
      ++it;
    } else {
      Remove(it->second);
      it = series_.erase(it);
    }
  }
  for (const auto& [label, total] : totals) {
    auto [it, added] = series_.try_emplace(label);
    if (added) it->second = Make(label);
    const Series& series = it->second;
    series.scheduled->Set(static_cast<double>(total.counts.scheduled));
    series.blocked->Set(static_cast<double>(total.counts.blocked));
    series.ready->Set(static_cast<double>(total.counts.ready));
    series.leased->Set(static_cast<double>(total.counts.leased));
    series.suspended->Set(static_cast<double>(total.counts.suspended));
    series.oldest->Set(total.oldest_seconds);
    series.paused->Set(total.paused ? 1 : 0);
  }
}

}  // namespace tenure::http
