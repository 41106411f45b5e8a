#include "server/background/admission_gauges.h"

namespace tenure::background {

std::string GateReason(const store::AdmissionCounts& queue) {
  if (queue.max && queue.held >= *queue.max) return "queue";
  if (queue.fair) return "turn";
  return queue.has_rate ? "rate" : "queue";
}

void AdmissionGauges::Update(const std::vector<store::AdmissionCounts>& queues) {
  std::map<std::pair<Family*, Labels>, double> values;
  for (const store::AdmissionCounts& queue : queues) {
    const std::string label = metrics_.queue_labels().Label(queue.name);
    const std::pair<std::string, int64_t> blocked[] = {
        {"dependency", queue.dependency}, {"group", queue.group}, {"key", queue.key}, {GateReason(queue), queue.gate}};
    for (const auto& [reason, jobs] : blocked) {
      if (jobs == 0) continue;
      values[{&metrics_.queue_blocked_jobs, {{"queue", label}, {"reason", reason}}}] += static_cast<double>(jobs);
    }
    if (queue.fair) {
      values[{&metrics_.queue_waiting_tenants, {{"queue", label}}}] += static_cast<double>(queue.tenants);
    }
    if (queue.max) {
      values[{&metrics_.queue_limit_jobs, {{"queue", label}}}] += *queue.max;
      values[{&metrics_.queue_limit_held_jobs, {{"queue", label}}}] += static_cast<double>(queue.held);
    }
  }
  for (auto it = series_.begin(); it != series_.end();) {
    if (values.contains(it->first)) {
      ++it;
      continue;
    }
    it->first.first->Remove(it->second);
    it = series_.erase(it);
  }
  for (const auto& [series, value] : values) {
    auto [known, fresh] = series_.try_emplace(series, nullptr);
    if (fresh) known->second = &series.first->Add(series.second);
    known->second->Set(value);
  }
}

}  // namespace tenure::background
