// What the kernel says about this process (CPU time, memory, file descriptors, threads), read from /proc at each scrape
// under the names that Prometheus client libraries agree on. Layer: base. Thread-safe.
#pragma once

#include <mutex>
#include <optional>
#include <string_view>

#include "server/base/metrics.h"

namespace tenure {

// Of /proc/self/stat.
struct ProcessStat {
  double cpu_seconds = 0;  // User and system.
  double threads = 0;
  double start_seconds = 0;  // After boot.
  double virtual_bytes = 0;
  double resident_bytes = 0;
};
// `ticks_per_second` and `page_size` are the kernel's. nullopt if `text` is not a stat line.
std::optional<ProcessStat> ParseProcessStat(std::string_view text, double ticks_per_second, double page_size);

class ProcessMetrics {
 public:
  explicit ProcessMetrics(Metrics& metrics) : metrics_(metrics) {}

  // Reads /proc and sets the process_* metrics. What cannot be read keeps its last value (and is absent before the
  // first).
  void Refresh();

 private:
  Metrics& metrics_;
  std::mutex mutex_;  // One refresh at a time: the CPU counter grows by a difference.
};

}  // namespace tenure
