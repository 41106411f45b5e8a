// The promoter: makes scheduled jobs ready when they are due, to the millisecond. Layer: background.
//
// When. Promote says how long it is until the next due time that it can see; the loop sleeps until then, and is woken
// by a job that is scheduled for an earlier time (PromoterSignal, told by the engine after its own commits and, for
// those of other replicas and of SQL callers, when it reads their events).
//
// Where from. The index of scheduled jobs is consumed from its head, and while vacuum is held back the head is a
// growing heap of dead entries. So each Promote begins at a cursor, a due time by PostgreSQL's clock: before it nothing
// that is due and visible was left. The store moves it (PromoteResult::cursor): up to the statement's now(), or to the
// last row read, and never past a row that was passed over because somebody had it locked.
//
// What can appear behind the cursor? A job due at d whose transaction commits at t, seen by nobody before t:
//   - d > t: every statement with a snapshot before t has a now() before t, so the cursor is before d. Nothing to do.
//   - d <= t: (a short delay, or a long transaction) a statement between d and t may have moved the cursor past d.
// In the second case the announcement arrives after t and tells a time that is past, or nearly: then the cursor goes
// back to d. Announcements are durations from "now" on their sender's side, so d is estimated: the time it took the
// message to arrive makes the estimate late, and a late one would pass the job by. Hence kMargin, which costs a re-read
// of what was due in the last two seconds, and only when something was announced behind the cursor plus margin. A job
// that nobody announced (its event was rotated away, a message took longer than the margin) is found by the net: a scan
// from the beginning at the start of each term, and once a minute.
//
// The signal is taken before the statement whose snapshot covers it. Taken after, a job that is announced between the
// two would be forgotten.
#include <algorithm>
#include <optional>

#include "server/background/promoter_signal.h"
#include "server/background/workers.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"promoter.batch", "Jobs made ready per transaction", TunableUnit::kRows, 1000, 1, 10'000},
    {"promoter.min_pause",
     "Shortest pause between two transactions that did not fill their batch: jobs that become due within it go "
     "together",
     TunableUnit::kDuration, kMillisecond, 0, kSecond},
    {"promoter.full_scan_interval", "How often due jobs are looked for from the beginning, as a net under the cursor",
     TunableUnit::kDuration, kMinute, kSecond, kHour},
};

constexpr absl::Duration kMargin = absl::Seconds(2);
constexpr Clock::Duration kPassedOverPause = std::chrono::milliseconds(50);

class Promoter : public Worker {
 public:
  explicit Promoter(const Dependencies& dependencies)
      : store_(*dependencies.store),
        clock_(*dependencies.clock),
        signal_(*dependencies.promoter_signal),
        note_ready_(dependencies.note_ready),
        note_gates_(dependencies.note_gates),
        batch_(static_cast<int>(dependencies.tunables->Count("promoter.batch"))),
        min_pause_(absl::ToChronoNanoseconds(dependencies.tunables->Duration("promoter.min_pause"))),
        full_scan_interval_(absl::ToChronoNanoseconds(dependencies.tunables->Duration("promoter.full_scan_interval"))) {
  }

  absl::Status Run(RunContext& context) override {
    // The wait is the signal's, so a round never asks RunRounds to pause; errors do.
    return RunRounds(context, [&]() -> absl::StatusOr<absl::Duration> {
      if (!signal_.WaitUntil(wake_at_, context.stop())) return absl::ZeroDuration();
      TENURE_RETURN_IF_ERROR(Round(context.fence()));
      return absl::ZeroDuration();
    });
  }

 private:
  absl::Status Round(const store::Fence& fence) {
    const std::optional<Clock::TimePoint> announced = signal_.Take();
    const Clock::TimePoint sent = clock_.Now();
    const bool full_scan = !full_scan_due_ || sent >= *full_scan_due_;
    if (full_scan) {
      cursor_ = absl::InfinitePast();
    } else if (announced) {
      cursor_ = std::min(cursor_, DatabaseTime(*announced) - kMargin);
    }
    // If the statement fails, the next one begins at the same cursor, which went back for what was announced and stays
    // there.
    wake_at_ = sent;
    TENURE_ASSIGN_OR_RETURN(store::PromoteResult result, store_.Promote(fence, cursor_, batch_));
    const Clock::TimePoint received = clock_.Now();
    if (full_scan) full_scan_due_ = sent + full_scan_interval_;
    cursor_ = result.cursor;
    database_now_ = result.now;
    database_now_at_ = received;
    if (!result.ready.empty() && note_ready_) note_ready_(std::move(result.ready));
    if (!result.blocked.empty() && note_gates_) note_gates_(result.blocked);
    if (result.more) return absl::OkStatus();

    Clock::TimePoint next = *full_scan_due_;
    if (result.next_due) {
      // Counted from when the statement was sent: rather a little early, and then once more, than late.
      const absl::Duration until = std::clamp(*result.next_due, absl::ZeroDuration(), absl::Hours(24));
      next = std::min(next, sent + absl::ToChronoNanoseconds(until));
    }
    // The cursor stands at a row that was passed over: its holder may let it go without a word.
    if (result.cursor < result.now) next = std::min(next, received + kPassedOverPause);
    wake_at_ = std::max(next, received + min_pause_);
    return absl::OkStatus();
  }

  // The process's clock has no date: an instant is placed by the database's now() of the last statement. Its reply came
  // later than that now(), so the result is rather too early, which is the harmless side.
  absl::Time DatabaseTime(Clock::TimePoint instant) const {
    return database_now_ +
           absl::FromChrono(std::chrono::duration_cast<std::chrono::nanoseconds>(instant - database_now_at_));
  }

  store::Store& store_;
  Clock& clock_;
  PromoterSignal& signal_;
  const std::function<void(std::vector<store::ReadyRange>)> note_ready_;
  const std::function<void(const store::GatesByQueue&)> note_gates_;
  const int batch_;
  const Clock::Duration min_pause_;
  const Clock::Duration full_scan_interval_;

  absl::Time cursor_ = absl::InfinitePast();
  std::optional<Clock::TimePoint> full_scan_due_;  // Unset until the first full scan of the term.
  absl::Time database_now_;
  Clock::TimePoint database_now_at_;
  Clock::TimePoint wake_at_;  // Long ago: at once.
};

}  // namespace

WorkerEntry PromoterWorker() {
  return {.name = "promoter",
          .help = "makes scheduled jobs ready when they are due",
          .needed_for_liveness = true,
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<Promoter>(dependencies);
          }};
}

}  // namespace tenure::background
