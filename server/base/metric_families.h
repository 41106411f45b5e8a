// Families of counters and histograms whose `queue` label is bounded, so that a million queue names cannot fill the
// daemon's memory or the monitoring's. Layer: base. Thread-safe. metrics.h declares the families; this file only says
// how they behave.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/labels.h"

namespace tenure {

// Decides which queues have series of their own: the first `limit` names that were seen since the process began. All
// others share the series of `_other`; a name that once had its own keeps it, since a counter must not move from one
// series to another.
class QueueLabels {
 public:
  static constexpr std::string_view kOther = "_other";

  explicit QueueLabels(size_t limit) : limit_(limit) {}

  // The label value for `queue`: itself or `_other`.
  std::string Label(std::string_view queue);

 private:
  const size_t limit_;
  std::shared_mutex mutex_;
  std::set<std::string, std::less<>> own_;
};

// Counters of one name.
class CounterFamily {
 public:
  // `queues` is null for a family without a queue label. Both outlive this.
  CounterFamily(prometheus::Family<prometheus::Counter>& family, QueueLabels* queues)
      : family_(family), queues_(queues) {}

  // The series of `labels`, made on first use; lives as long as the registry, so hot code may keep the reference.
  prometheus::Counter& Add(const prometheus::Labels& labels);
  prometheus::Family<prometheus::Counter>& family() { return family_; }

 private:
  prometheus::Family<prometheus::Counter>& family_;
  QueueLabels* queues_;
};

// Histograms of one name, all with the same buckets.
class HistogramFamily {
 public:
  HistogramFamily(prometheus::Family<prometheus::Histogram>& family, QueueLabels* queues,
                  prometheus::Histogram::BucketBoundaries buckets)
      : family_(family), queues_(queues), buckets_(std::move(buckets)) {}
  HistogramFamily(const HistogramFamily&) = delete;
  HistogramFamily& operator=(const HistogramFamily&) = delete;

  // As CounterFamily::Add. The look-up takes a read lock and compares the labels; prometheus-cpp's own would build a
  // whole histogram each time, only to throw it away.
  prometheus::Histogram& Add(const prometheus::Labels& labels);
  void Observe(const prometheus::Labels& labels, double value) { Add(labels).Observe(value); }
  prometheus::Family<prometheus::Histogram>& family() { return family_; }

 private:
  prometheus::Family<prometheus::Histogram>& family_;
  QueueLabels* queues_;
  const prometheus::Histogram::BucketBoundaries buckets_;
  std::shared_mutex mutex_;
  std::map<prometheus::Labels, prometheus::Histogram*> series_;
};

}  // namespace tenure
