// The text of /metrics. Layer: http. Thread-safe.
#pragma once

#include <functional>
#include <mutex>

#include "server/base/metrics.h"
#include "server/base/process_metrics.h"
#include "server/http/message.h"

namespace tenure::http {

class MetricsPage {
 public:
  // `refresh` (may be empty) updates the gauges that are read rather than kept; it runs before each scrape, one at a
  // time, on the HTTP port's threads, and must not block.
  MetricsPage(Metrics& metrics, std::function<void()> refresh);

  // All series in Prometheus's text format, version 0.0.4.
  Response Render();

 private:
  Metrics& metrics_;
  ProcessMetrics process_;
  std::function<void()> refresh_;
  std::mutex mutex_;
};

}  // namespace tenure::http
