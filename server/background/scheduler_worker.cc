// The scheduler: makes the jobs of schedules (cron) when their slots come. Layer: background.
//
// Which slots are due is worked out here, from what was read; the statement that makes their jobs writes only what was
// planned for a schedule as it still is, in this leader's term, and a slot that has its job already gets no second. So
// a plan that is late, doubled or of a leader whose term is over does no harm.
//
// It sleeps until the next slot, but never longer than scheduler.poll_interval: that is how soon a schedule that was
// made or changed meanwhile, on any replica, is taken into account.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "server/background/workers.h"
#include "server/base/logging.h"
#include "server/base/status.h"
#include "server/store/schedule_timing.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"scheduler.poll_interval", "How soon, at the latest, new and changed schedules are taken into account",
     TunableUnit::kDuration, 500 * kMillisecond, 50 * kMillisecond, kSecond},
    {"scheduler.batch", "Schedules that fire per transaction", TunableUnit::kRows, 200, 1, 1000},
    {"scheduler.on_time", "A slot that is later than this was missed, and the schedule's catch_up decides",
     TunableUnit::kDuration, kMinute, kSecond, kHour},
    {"scheduler.run_retention", "How long runs are kept, and with them the request ids of runs by hand",
     TunableUnit::kDays, 7, 1, 365},
};

constexpr auto kPruneInterval = std::chrono::minutes(1);
constexpr int kPruneBatch = 1000;
// A schedule whose row, or whose previous job, somebody holds.
constexpr auto kBusyPause = std::chrono::milliseconds(100);
// A schedule whose slots cannot be worked out: its time zone has gone from the machine.
constexpr auto kUnsoundPause = std::chrono::minutes(1);

class Scheduler : public Worker {
 public:
  explicit Scheduler(const Dependencies& dependencies)
      : store_(*dependencies.store),
        clock_(*dependencies.clock),
        note_ready_(dependencies.note_ready),
        poll_interval_(dependencies.tunables->Duration("scheduler.poll_interval")),
        batch_(static_cast<int>(dependencies.tunables->Count("scheduler.batch"))),
        on_time_(dependencies.tunables->Duration("scheduler.on_time")),
        retention_(absl::Hours(24 * dependencies.tunables->Count("scheduler.run_retention"))) {}

  absl::Status Run(RunContext& context) override {
    return RunRounds(context, [&] { return Round(context); });
  }

 private:
  absl::StatusOr<absl::Duration> Round(RunContext& context) {
    const Clock::TimePoint began = clock_.Now();
    std::erase_if(deferred_, [&](const auto& entry) { return entry.second <= began; });
    std::vector<int64_t> except;
    for (const auto& [id, unused] : deferred_) except.push_back(id);
    TENURE_ASSIGN_OR_RETURN(store::DueSchedules due, store_.ListDueSchedules(batch_, except));

    std::vector<store::Firing> together, alone;
    for (const store::DueSchedule& schedule : due.schedules) {
      const absl::StatusOr<store::Timing> timing = store::Timing::Make(schedule.timing);
      if (!timing.ok()) {
        deferred_[schedule.id] = began + kUnsoundPause;
        // Its turn comes again; the others go on.
        context.Report(
            MakeError(timing.status().code(), "SCHEDULE_UNSOUND",
                      absl::StrCat("the schedule \"", schedule.name, "\" cannot fire: ", timing.status().message())));
        continue;
      }
      store::Timing::Plan plan = timing->Due(schedule.next, due.now, on_time_, schedule.catch_up, schedule.overlap);
      store::Firing firing;
      firing.id = schedule.id;
      firing.version = schedule.version;
      firing.was = schedule.next;
      firing.slots = std::move(plan.run);
      firing.missed = plan.missed;
      firing.next = plan.next;
      firing.cancels = schedule.overlap == store::Overlap::kCancelPrevious;
      // What has to end a job may have to wait for whoever holds it, and must not make others wait.
      (firing.cancels ? alone : together).push_back(std::move(firing));
    }
    if (!together.empty()) TENURE_RETURN_IF_ERROR(Fire(context.fence(), together));
    for (const store::Firing& firing : alone) {
      if (context.stopped()) break;
      TENURE_RETURN_IF_ERROR(Fire(context.fence(), {&firing, 1}));
    }
    if (!prune_due_ || began >= *prune_due_) {
      TENURE_ASSIGN_OR_RETURN(const int pruned, store_.PruneScheduleRuns(context.fence(), retention_, kPruneBatch));
      if (pruned < kPruneBatch) prune_due_ = began + kPruneInterval;
    }
    if (static_cast<int>(due.schedules.size()) >= batch_) return absl::ZeroDuration();
    return Pause(due, began);
  }

  absl::Status Fire(const store::Fence& fence, std::span<const store::Firing> firings) {
    TENURE_ASSIGN_OR_RETURN(store::FireResult result, store_.FireSchedules(fence, firings));
    for (const int64_t id : result.busy) deferred_[id] = clock_.Now() + kBusyPause;
    if (!result.ready.empty() && note_ready_) note_ready_(std::move(result.ready));
    return absl::OkStatus();
  }

  // Until the next slot that is known, or the next look.
  absl::Duration Pause(const store::DueSchedules& due, Clock::TimePoint began) const {
    absl::Duration pause = poll_interval_;
    const absl::Duration spent = absl::FromChrono(clock_.Now() - began);
    if (due.next_due) pause = std::min(pause, *due.next_due - spent);
    for (const auto& [id, until] : deferred_) pause = std::min(pause, absl::FromChrono(until - clock_.Now()));
    // What fired has a next slot of its own, which was not among those read: at least a second away for intervals and
    // rarely less than a minute for cron, and the next look is no later than that.
    return std::max(pause, absl::Milliseconds(1));
  }

  store::Store& store_;
  Clock& clock_;
  const std::function<void(std::vector<store::ReadyRange>)> note_ready_;
  const absl::Duration poll_interval_;
  const int batch_;
  const absl::Duration on_time_;
  const absl::Duration retention_;

  std::map<int64_t, Clock::TimePoint> deferred_;  // Not looked at before.
  std::optional<Clock::TimePoint> prune_due_;     // Unset until the first look of the term.
};

}  // namespace

WorkerEntry SchedulerWorker() {
  return {.name = "scheduler",
          .help = "makes the jobs of schedules when their slots come",
          .needed_for_liveness = true,
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<Scheduler>(dependencies);
          }};
}

}  // namespace tenure::background
