// See metric_families.h. Layer: base. Thread-safe.
#include "server/base/metric_families.h"

#include <mutex>

namespace tenure {
namespace {

// `labels` with the queue's label bounded. Returns `labels` itself (no copy) when nothing changes.
const prometheus::Labels& Bounded(const prometheus::Labels& labels, QueueLabels* queues, prometheus::Labels& storage) {
  if (queues == nullptr) return labels;
  auto queue = labels.find("queue");
  if (queue == labels.end()) return labels;
  std::string label = queues->Label(queue->second);
  if (label == queue->second) return labels;
  storage = labels;
  storage["queue"] = std::move(label);
  return storage;
}

}  // namespace

std::string QueueLabels::Label(std::string_view queue) {
  {
    std::shared_lock lock(mutex_);
    if (own_.contains(queue)) return std::string(queue);
    if (own_.size() >= limit_) return std::string(kOther);
  }
  std::unique_lock lock(mutex_);
  if (own_.contains(queue)) return std::string(queue);
  if (own_.size() >= limit_) return std::string(kOther);
  own_.emplace(queue);
  return std::string(queue);
}

prometheus::Counter& CounterFamily::Add(const prometheus::Labels& labels) {
  prometheus::Labels storage;
  return family_.Add(Bounded(labels, queues_, storage));
}

prometheus::Histogram& HistogramFamily::Add(const prometheus::Labels& labels) {
  prometheus::Labels storage;
  const prometheus::Labels& bounded = Bounded(labels, queues_, storage);
  {
    std::shared_lock lock(mutex_);
    auto found = series_.find(bounded);
    if (found != series_.end()) return *found->second;
  }
  std::unique_lock lock(mutex_);
  prometheus::Histogram*& series = series_[bounded];
  if (series == nullptr) series = &family_.Add(bounded, buckets_);
  return *series;
}

}  // namespace tenure
