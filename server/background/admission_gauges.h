// The gauges of admission: blocked jobs by what they wait for, tenants that wait for turns, limits of queues and how
// much of them is taken. Layer: background. Not thread-safe; of the worker admission, so one replica shows them. Beyond
// the bound of base/metric_families.h queues share the series `_other`, as sums.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/base/metrics.h"
#include "server/store/admission.h"

namespace tenure::background {

class AdmissionGauges {
 public:
  // `metrics` outlives this.
  explicit AdmissionGauges(Metrics& metrics) : metrics_(metrics) {}
  // Nobody may take what an earlier leader has seen for what is.
  ~AdmissionGauges() { Update({}); }
  AdmissionGauges(const AdmissionGauges&) = delete;
  AdmissionGauges& operator=(const AdmissionGauges&) = delete;

  // Makes the gauges equal to `queues`, which are all that have a gate or blocked jobs.
  void Update(const std::vector<store::AdmissionCounts>& queues);

 private:
  using Family = prometheus::Family<prometheus::Gauge>;
  using Labels = std::map<std::string, std::string>;

  Metrics& metrics_;
  std::map<std::pair<Family*, Labels>, prometheus::Gauge*> series_;
};

// What jobs at the gate of such a queue wait for, as the label says it: turn, queue (its limit), or rate.
std::string GateReason(const store::AdmissionCounts& queue);

}  // namespace tenure::background
