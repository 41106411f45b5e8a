// The gauges of queues (jobs by state, age of the oldest ready job, paused), set from what the engine knows. Series of
// queues that have gone are removed. Beyond the bound of base/metric_families.h, queues share the series `_other`: jobs
// are summed, the age is the highest, paused counts as 1 if any of them is. Layer: http. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "server/base/metrics.h"
#include "server/engine/engine.h"

namespace tenure::http {

class QueueMetrics {
 public:
  explicit QueueMetrics(Metrics& metrics) : metrics_(metrics) {}

  // Makes the gauges equal to `queues`, which are all the queues there are.
  void Update(const std::vector<engine::QueueInfo>& queues);

 private:
  struct Series {
    prometheus::Gauge* scheduled = nullptr;
    prometheus::Gauge* blocked = nullptr;
    prometheus::Gauge* ready = nullptr;
    prometheus::Gauge* leased = nullptr;
    prometheus::Gauge* suspended = nullptr;
    prometheus::Gauge* oldest = nullptr;
    prometheus::Gauge* paused = nullptr;
  };
  Series Make(const std::string& label);
  void Remove(const Series& series);

  Metrics& metrics_;
  std::mutex mutex_;
  std::map<std::string, Series> series_;  // By label value.
};

}  // namespace tenure::http
