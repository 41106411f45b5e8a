// Rates of queues from the daemon's totals, and the table that shows them. Layer: client/cli. Not thread-safe.
#pragma once

#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tenure/v1/queue_service.pb.h"

namespace tenure::cli {

class QueueRates {
 public:
  // Jobs a second between the last two updates.
  struct Rate {
    double enqueued = 0;
    double ended = 0;
  };

  void Update(const std::vector<v1::Queue>& queues, absl::Time now);
  // Absent until a queue was seen twice.
  std::optional<Rate> Of(const std::string& queue) const;

 private:
  struct Totals {
    int64_t enqueued = 0;
    int64_t ended = 0;
    std::optional<Rate> rate;
  };

  absl::Time updated_ = absl::InfinitePast();
  std::map<std::string, Totals> queues_;
};

// Busy queues first: those with ready or leased jobs, the most first; then by name.
void PrintTop(std::ostream& out, const std::vector<v1::Queue>& queues, const QueueRates& rates);

}  // namespace tenure::cli
