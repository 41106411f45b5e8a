// Notify: sends the events of jobs to webhooks and to SQS. What it does is targets/notifier.h. Layer: background.
#include "server/background/targets/notifier.h"
#include "server/background/workers.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"notify.poll_interval", "How soon, at the latest, events and changed targets are seen", TunableUnit::kDuration,
     250 * kMillisecond, 20 * kMillisecond, kSecond},
    {"notify.batch", "Events of a target that are taken at a time", TunableUnit::kRows, 200, 1, 2000},
    {"notify.in_flight", "Requests to one target at a time", TunableUnit::kRows, 8, 1, 64},
    {"notify.timeout", "How long a request may take", TunableUnit::kDuration, 10 * kSecond, 100 * kMillisecond,
     kMinute},
    {"notify.max_attempts", "After so many refusals a delivery is dead", TunableUnit::kRows, 20, 1, 1000},
    {"notify.first_retry", "Wait after the first refusal; it doubles with each further one", TunableUnit::kDuration,
     kSecond, 10 * kMillisecond, kHour},
    {"notify.longest_retry", "Longest wait between two attempts", TunableUnit::kDuration, kHour, kSecond, 24 * kHour},
    {"notify.dead_delivery_days", "How long dead deliveries are kept", TunableUnit::kDays, 30, 1, 3650},
};

class Notify : public Worker {
 public:
  explicit Notify(const Dependencies& d)
      : notifier_(*d.store, *d.clock, *d.metrics, *d.target_access,
                  {.poll_interval = d.tunables->Duration("notify.poll_interval"),
                   .batch = static_cast<int>(d.tunables->Count("notify.batch")),
                   .in_flight = static_cast<int>(d.tunables->Count("notify.in_flight")),
                   .timeout = d.tunables->Duration("notify.timeout"),
                   .max_attempts = static_cast<int>(d.tunables->Count("notify.max_attempts")),
                   .first_retry = d.tunables->Duration("notify.first_retry"),
                   .longest_retry = d.tunables->Duration("notify.longest_retry"),
                   .dead_retention = absl::Hours(24 * d.tunables->Count("notify.dead_delivery_days"))}) {}

  absl::Status Run(RunContext& context) override {
    const absl::Status status = RunRounds(context, [&] { return notifier_.Round(context); });
    notifier_.Finish(context);
    return status;
  }

 private:
  targets::Notifier notifier_;
};

}  // namespace

WorkerEntry NotifyWorker() {
  return {.name = "notify",
          .help = "sends events of jobs to webhooks and SQS",
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<Notify>(dependencies);
          }};
}

}  // namespace tenure::background
