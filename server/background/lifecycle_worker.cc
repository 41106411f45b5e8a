// Lifecycle: ends jobs whose time to start is over (expires_at) before anybody claimed them. A claim refuses such a job
// anyway; this moves it to history, so that its caller hears of it. Layer: background.
#include "server/background/workers.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"lifecycle.interval", "How often jobs that were not started in time are looked for", TunableUnit::kDuration,
     kSecond, 100 * kMillisecond, kMinute},
    {"lifecycle.batch", "Jobs ended per transaction", TunableUnit::kRows, 1000, 1, 10'000},
};

class Lifecycle : public Worker {
 public:
  explicit Lifecycle(const Dependencies& dependencies)
      : store_(*dependencies.store),
        interval_(dependencies.tunables->Duration("lifecycle.interval")),
        batch_(static_cast<int>(dependencies.tunables->Count("lifecycle.batch"))) {}

  absl::Status Run(RunContext& context) override {
    return RunRounds(context, [&]() -> absl::StatusOr<absl::Duration> {
      TENURE_ASSIGN_OR_RETURN(const int ended, store_.ExpireJobs(context.fence(), batch_));
      return ended >= batch_ ? absl::ZeroDuration() : interval_;
    });
  }

 private:
  store::Store& store_;
  const absl::Duration interval_;
  const int batch_;
};

}  // namespace

WorkerEntry LifecycleWorker() {
  return {.name = "lifecycle",
          .help = "ends jobs that were not started in time",
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<Lifecycle>(dependencies);
          }};
}

}  // namespace tenure::background
