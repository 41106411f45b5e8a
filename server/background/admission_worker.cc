// Admission: the net under it. Whoever frees a slot has it filled again at once; if the process dies in between, or its
// look fails for long, this sweep finds who waits. It pages through the names of keys, groups and queues that jobs wait
// for, a page a round, and has each looked at; who may pass is decided then. The same of what jobs wait for: those that
// ended unnoticed. It also sends the ready jobs of queues that were given a gate back to it (Store::Recall), and counts
// what waits, for the metrics. Layer: background.
#include <algorithm>
#include <memory>
#include <vector>

#include "server/background/admission_gauges.h"
#include "server/background/workers.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"admission.interval", "How often a page of blocked keys and groups is looked at, as a net under admission",
     TunableUnit::kDuration, kSecond, 100 * kMillisecond, kMinute},
    {"admission.batch", "Keys and groups per page: N of them are all looked at once in N / batch intervals",
     TunableUnit::kRows, 1000, 1, 10'000},
    {"admission.count_interval",
     "How often blocked jobs are counted by what they wait for; seldomer where it takes long", TunableUnit::kDuration,
     15 * kSecond, kSecond, 60 * kMinute},
};

// Queues with a recall that a round serves.
constexpr int kRecalls = 100;
// Counting takes at most one part in so many of the time.
constexpr int kCountShare = 100;

class AdmissionSweep : public Worker {
 public:
  explicit AdmissionSweep(const Dependencies& dependencies)
      : store_(*dependencies.store),
        note_gates_(dependencies.note_gates),
        interval_(dependencies.tunables->Duration("admission.interval")),
        count_interval_(absl::ToChronoNanoseconds(dependencies.tunables->Duration("admission.count_interval"))),
        batch_(static_cast<int>(dependencies.tunables->Count("admission.batch"))) {
    if (dependencies.metrics != nullptr) gauges_ = std::make_unique<AdmissionGauges>(*dependencies.metrics);
  }

  absl::Status Run(RunContext& context) override {
    return RunRounds(context, [&]() -> absl::StatusOr<absl::Duration> {
      TENURE_ASSIGN_OR_RETURN(store::BlockedPage page, store_.BlockedNames(at_, batch_));
      if (!page.names.empty() && note_gates_) note_gates_(page.names);
      at_ = page.next.value_or(store::BlockedPage::Cursor());
      TENURE_ASSIGN_OR_RETURN(const store::DependencyPage waiting, store_.SweepDependencies(dependency_at_, batch_));
      if (!waiting.ended.empty() && note_gates_) note_gates_(waiting.ended);
      dependency_at_ = waiting.next.value_or(store::DependencyPage::Cursor());
      TENURE_ASSIGN_OR_RETURN(const bool more, Recall(context));
      TENURE_RETURN_IF_ERROR(Count(context));
      return more ? absl::ZeroDuration() : interval_;
    });
  }

 private:
  // Batch after batch, for as long as a round takes at most: the rest of the sweep has to go on. True: there is more.
  absl::StatusOr<bool> Recall(RunContext& context) {
    TENURE_ASSIGN_OR_RETURN(const std::vector<int32_t> queues, store_.Recalls(kRecalls));
    const Clock::TimePoint ends = context.clock().Now() + absl::ToChronoNanoseconds(interval_);
    bool any = false;
    for (const int32_t queue : queues) {
      bool more = true;
      while (more && !context.stopped() && context.clock().Now() < ends) {
        TENURE_ASSIGN_OR_RETURN(const store::RecallStep step, store_.Recall(queue, batch_));
        if (step.recalled > 0 && note_gates_) note_gates_({{queue, {"q"}}});
        more = step.more;
      }
      any = any || more;
    }
    return any;
  }

  absl::Status Count(RunContext& context) {
    const Clock::TimePoint began = context.clock().Now();
    if (!gauges_ || began < count_at_) return absl::OkStatus();
    const auto queues = store_.CountBlocked();
    // What is not known is not shown.
    gauges_->Update(queues.ok() ? *queues : std::vector<store::AdmissionCounts>());
    const Clock::TimePoint now = context.clock().Now();
    count_at_ = now + std::max<Clock::Duration>(count_interval_, kCountShare * (now - began));
    return queues.status();
  }

  store::Store& store_;
  const std::function<void(const store::GatesByQueue&)> note_gates_;
  const absl::Duration interval_;
  const Clock::Duration count_interval_;
  const int batch_;
  store::BlockedPage::Cursor at_;
  store::DependencyPage::Cursor dependency_at_;
  std::unique_ptr<AdmissionGauges> gauges_;
  Clock::TimePoint count_at_{};
};

}  // namespace

WorkerEntry AdmissionWorker() {
  return {.name = "admission",
          .help = "looks for blocked jobs whose slot became free unnoticed, and counts those that wait",
          .needed_for_liveness = true,
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<AdmissionSweep>(dependencies);
          }};
}

}  // namespace tenure::background
