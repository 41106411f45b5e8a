// Stats: folds the count deltas of events into the stored counts of each queue, and empties event slots that nobody
// needs any more, so that a replica which starts reads a few rows instead of counting jobs. Layer: background.
#include "server/background/workers.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"stats.interval", "How often count changes are folded into the stored counts", TunableUnit::kDuration, kSecond,
     100 * kMillisecond, kMinute},
};

class Stats : public Worker {
 public:
  explicit Stats(const Dependencies& dependencies)
      : store_(*dependencies.store), interval_(dependencies.tunables->Duration("stats.interval")) {}

  absl::Status Run(RunContext& context) override {
    return RunRounds(context, [&]() -> absl::StatusOr<absl::Duration> {
      TENURE_RETURN_IF_ERROR(store_.FoldStats(context.fence()));
      return interval_;
    });
  }

 private:
  store::Store& store_;
  const absl::Duration interval_;
};

}  // namespace

WorkerEntry StatsWorker() {
  return {.name = "stats",
          .help = "folds count changes into the stored counts and empties old event slots",
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<Stats>(dependencies);
          }};
}

}  // namespace tenure::background
