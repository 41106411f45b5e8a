// Admission: the net under it. Whoever frees a slot has it filled again at once; if the process dies in between, or its
// look fails for long, this sweep finds who waits. It pages through the names of keys, groups and queues that jobs wait
// for, a page a round, and has each looked at; who may pass is decided then. The same of what jobs wait for: those that
// ended unnoticed. Layer: background.
#include "server/background/workers.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"admission.interval", "How often a page of blocked keys and groups is looked at, as a net under admission",
     TunableUnit::kDuration, kSecond, 100 * kMillisecond, kMinute},
    {"admission.batch", "Keys and groups per page: N of them are all looked at once in N / batch intervals",
     TunableUnit::kRows, 1000, 1, 10'000},
};

class AdmissionSweep : public Worker {
 public:
  explicit AdmissionSweep(const Dependencies& dependencies)
      : store_(*dependencies.store),
        note_gates_(dependencies.note_gates),
        interval_(dependencies.tunables->Duration("admission.interval")),
        batch_(static_cast<int>(dependencies.tunables->Count("admission.batch"))) {}

  absl::Status Run(RunContext& context) override {
    return RunRounds(context, [&]() -> absl::StatusOr<absl::Duration> {
      TENURE_ASSIGN_OR_RETURN(store::BlockedPage page, store_.BlockedNames(at_, batch_));
      if (!page.names.empty() && note_gates_) note_gates_(page.names);
      at_ = page.next.value_or(store::BlockedPage::Cursor());
      TENURE_ASSIGN_OR_RETURN(const store::DependencyPage waiting, store_.SweepDependencies(dependency_at_, batch_));
      if (!waiting.ended.empty() && note_gates_) note_gates_(waiting.ended);
      dependency_at_ = waiting.next.value_or(store::DependencyPage::Cursor());
      return interval_;
    });
  }

 private:
  store::Store& store_;
  const std::function<void(const store::GatesByQueue&)> note_gates_;
  const absl::Duration interval_;
  const int batch_;
  store::BlockedPage::Cursor at_;
  store::DependencyPage::Cursor dependency_at_;
};

}  // namespace

WorkerEntry AdmissionWorker() {
  return {.name = "admission",
          .help = "looks for blocked jobs whose slot became free unnoticed",
          .needed_for_liveness = true,
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<AdmissionSweep>(dependencies);
          }};
}

}  // namespace tenure::background
