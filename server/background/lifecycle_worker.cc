// Lifecycle: ends jobs whose time to start is over (expires_at) before anybody claimed them. A claim refuses such a job
// anyway; this moves it to history, so that its caller hears of it. And it serves the moves of jobs between queues,
// each a batch at a time, so that none keeps another waiting. Layer: background.
#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/background/promoter_signal.h"
#include "server/background/workers.h"
#include "server/base/logging.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"lifecycle.interval", "How often jobs that were not started in time are looked for", TunableUnit::kDuration,
     kSecond, 100 * kMillisecond, kMinute},
    {"lifecycle.batch", "Jobs ended per transaction", TunableUnit::kRows, 1000, 1, 10'000},
    {"lifecycle.move_batch", "Jobs moved to another queue per transaction", TunableUnit::kRows, 500, 1, 5'000},
};

class Lifecycle : public Worker {
 public:
  explicit Lifecycle(const Dependencies& dependencies)
      : store_(*dependencies.store),
        note_ready_(dependencies.note_ready),
        promoter_signal_(dependencies.promoter_signal),
        move_batch_(static_cast<int>(dependencies.tunables->Count("lifecycle.move_batch"))),
        note_gates_(dependencies.note_gates),
        interval_(dependencies.tunables->Duration("lifecycle.interval")),
        batch_(static_cast<int>(dependencies.tunables->Count("lifecycle.batch"))) {}

  absl::Status Run(RunContext& context) override {
    return RunRounds(context, [&]() -> absl::StatusOr<absl::Duration> {
      if (context.clock().Now() >= next_expiry_) {
        store::GatesByQueue freed;
        TENURE_ASSIGN_OR_RETURN(const int ended, store_.ExpireJobs(context.fence(), batch_, &freed));
        if (!freed.empty() && note_gates_) note_gates_(freed);
        if (ended < batch_) next_expiry_ = context.clock().Now() + absl::ToChronoNanoseconds(interval_);
      }
      TENURE_ASSIGN_OR_RETURN(const absl::Duration moves, StepMoves(context));
      return std::clamp(absl::FromChrono(next_expiry_ - context.clock().Now()), absl::ZeroDuration(), moves);
    });
  }

 private:
  // A batch of each move that runs and whose time has come; how long until the next is due.
  absl::StatusOr<absl::Duration> StepMoves(RunContext& context) {
    TENURE_ASSIGN_OR_RETURN(const std::vector<int64_t> moves, store_.ListRunningMoves());
    std::erase_if(next_step_,
                  [&](const auto& entry) { return std::find(moves.begin(), moves.end(), entry.first) == moves.end(); });
    absl::Duration pause = interval_;
    absl::Status failure;
    for (const int64_t move : moves) {
      if (context.stopped()) break;
      Clock::TimePoint& next = next_step_[move];
      if (context.clock().Now() >= next) {
        const absl::StatusOr<absl::Duration> wait = StepMove(context, move);
        if (!wait.ok() && (IsTermOver(wait.status()) || absl::IsUnavailable(wait.status()))) return wait.status();
        failure.Update(wait.status());
        next = context.clock().Now() + absl::ToChronoNanoseconds(wait.value_or(kAfterError));
      }
      pause = std::min(pause, absl::FromChrono(next - context.clock().Now()));
    }
    // Told once all had their turn: one that fails keeps no other waiting.
    if (!failure.ok()) context.Report(failure);
    return std::max(pause, absl::ZeroDuration());
  }

  absl::StatusOr<absl::Duration> StepMove(RunContext& context, int64_t move) {
    absl::StatusOr<store::MoveStep> step = store_.StepMove(context.fence(), move, move_batch_);
    if (!step.ok()) {
      if (!IsTermOver(step.status()) && !absl::IsUnavailable(step.status())) {
        TENURE_RETURN_IF_ERROR(store_.NoteMoveError(context.fence(), move, std::string(step.status().message())));
      }
      return step.status();
    }
    if (!step->ready.empty() && note_ready_) note_ready_(std::move(step->ready));
    if (step->earliest_due && promoter_signal_ != nullptr) promoter_signal_->Scheduled(*step->earliest_due);
    if (step->ended) LogInfo("move ended", {{"move", absl::StrCat(move)}});
    return step->wait;
  }

  static constexpr absl::Duration kAfterError = absl::Seconds(5);

  store::Store& store_;
  const std::function<void(std::vector<store::ReadyRange>)> note_ready_;
  PromoterSignal* const promoter_signal_;
  const int move_batch_;
  std::map<int64_t, Clock::TimePoint> next_step_;  // By move.
  Clock::TimePoint next_expiry_{};
  const std::function<void(const store::GatesByQueue&)> note_gates_;
  const absl::Duration interval_;
  const int batch_;
};

}  // namespace

WorkerEntry LifecycleWorker() {
  return {.name = "lifecycle",
          .help = "ends jobs that were not started in time, moves jobs between queues",
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<Lifecycle>(dependencies);
          }};
}

}  // namespace tenure::background
