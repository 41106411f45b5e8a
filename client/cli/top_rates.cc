// Rates of queues and their table. Layer: client/cli. Not thread-safe.
#include "client/cli/top_rates.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/output.h"
#include "client/cli/values.h"

namespace tenure::cli {
namespace {

int64_t Ended(const v1::QueueStats& stats) {
  return stats.completed_total() + stats.discarded_total() + stats.cancelled_total() + stats.expired_total();
}

std::string FormatRate(double per_second) {
  return per_second < 10 ? absl::StrFormat("%.1f", per_second) : absl::StrFormat("%.0f", per_second);
}

}  // namespace

void QueueRates::Update(const std::vector<v1::Queue>& queues, absl::Time now) {
  const double seconds = absl::ToDoubleSeconds(now - updated_);
  std::map<std::string, Totals> updated;
  for (const v1::Queue& queue : queues) {
    Totals totals{queue.stats().enqueued_total(), Ended(queue.stats()), std::nullopt};
    const auto before = queues_.find(queue.name());
    if (before != queues_.end() && seconds > 0) {
      // Another replica's totals may be a little behind; that is no negative rate.
      totals.rate = Rate{static_cast<double>(std::max<int64_t>(0, totals.enqueued - before->second.enqueued)) / seconds,
                         static_cast<double>(std::max<int64_t>(0, totals.ended - before->second.ended)) / seconds};
    }
    updated.emplace(queue.name(), totals);
  }
  queues_ = std::move(updated);
  updated_ = now;
}

std::optional<QueueRates::Rate> QueueRates::Of(const std::string& queue) const {
  const auto found = queues_.find(queue);
  return found == queues_.end() ? std::nullopt : found->second.rate;
}

void PrintTop(std::ostream& out, const std::vector<v1::Queue>& queues, const QueueRates& rates) {
  std::vector<const v1::Queue*> sorted;
  sorted.reserve(queues.size());
  int64_t ready = 0;
  int64_t leased = 0;
  for (const v1::Queue& queue : queues) {
    sorted.push_back(&queue);
    ready += queue.stats().ready();
    leased += queue.stats().leased();
  }
  const auto busy = [](const v1::Queue* queue) { return queue->stats().ready() + queue->stats().leased(); };
  std::sort(sorted.begin(), sorted.end(), [&busy](const v1::Queue* a, const v1::Queue* b) {
    return busy(a) != busy(b) ? busy(a) > busy(b) : a->name() < b->name();
  });
  Table table({{"QUEUE"},
               {"STATE"},
               {"READY", true},
               {"OLDEST", true},
               {"LEASED", true},
               {"SCHEDULED", true},
               {"BLOCKED", true},
               {"ENQUEUED/S", true},
               {"ENDED/S", true},
               {"DISCARDED", true}});
  for (const v1::Queue* queue : sorted) {
    const v1::QueueStats& stats = queue->stats();
    const std::optional<QueueRates::Rate> rate = rates.Of(queue->name());
    table.AddRow({queue->name(), queue->paused() ? "paused" : "open", absl::StrCat(stats.ready()),
                  stats.has_oldest_ready_age() ? ShowDuration(FromProto(stats.oldest_ready_age())) : "",
                  absl::StrCat(stats.leased()), absl::StrCat(stats.scheduled()), absl::StrCat(stats.blocked()),
                  rate ? FormatRate(rate->enqueued) : "", rate ? FormatRate(rate->ended) : "",
                  absl::StrCat(stats.discarded_total())});
  }
  table.Print(out);
  out << (sorted.empty() ? "" : "\n") << sorted.size() << " queues, " << ready << " ready, " << leased << " leased\n";
}

}  // namespace tenure::cli
