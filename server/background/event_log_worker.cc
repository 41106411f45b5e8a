// Event log: writes the events of jobs as JSON lines, one object a flush. Layer: background.
//
// A page of events is fixed in the database before its object is written, under a name made of the events' sequence
// numbers; then the object is read back, and only then the target's place is moved, in the leader's term. So whoever
// goes on after a crash writes the same object with the same bytes under the same name: in order, no doubles, no gaps.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/background/targets/event_json.h"
#include "server/background/targets/object_sink.h"
#include "server/background/targets/target_loop.h"
#include "server/background/workers.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"event-log.poll_interval", "How often targets are looked at", TunableUnit::kDuration, 500 * kMillisecond,
     20 * kMillisecond, 10 * kSecond},
    {"event-log.batch", "Events in one object at most", TunableUnit::kRows, 5000, 1, 50'000},
};

constexpr auto kRotateInterval = std::chrono::minutes(1);
constexpr std::string_view kPurpose = "event-log";

class EventLog : public Worker {
 public:
  explicit EventLog(const Dependencies& d)
      : store_(*d.store),
        clock_(*d.clock),
        metrics_(*d.metrics),
        batch_(static_cast<int>(d.tunables->Count("event-log.batch"))),
        loop_(*d.store, *d.clock, *d.metrics, *d.target_access, store::TargetPurpose::kEventLog,
              d.tunables->Duration("event-log.poll_interval"),
              [this](const store::TargetWork& work, RunContext& context) { return Serve(work, context); }) {}

  absl::Status Run(RunContext& context) override {
    return RunRounds(context, [&]() -> absl::StatusOr<absl::Duration> {
      if (clock_.Now() >= next_rotation_) {
        next_rotation_ = clock_.Now() + kRotateInterval;
        TENURE_RETURN_IF_ERROR(store_.RotateOutbox(context.fence()));
      }
      return loop_.Round(context);
    });
  }

 private:
  absl::StatusOr<absl::Duration> Serve(const store::TargetWork& work, RunContext& context) {
    const int64_t id = work.target.id;
    if (!work.fresh) {
      waiting_.erase(id);
      return absl::ZeroDuration();
    }
    // Events gather from when the first of them was seen.
    const Clock::TimePoint since = waiting_.try_emplace(id, clock_.Now()).first->second;
    const absl::Duration waited = absl::FromChrono(clock_.Now() - since);
    if (waited < work.target.settings.interval.value_or(store::kEventLogInterval)) return waited;
    TENURE_ASSIGN_OR_RETURN(const std::unique_ptr<targets::ObjectSink> sink,
                            targets::MakeSink(work.target.settings, loop_.access(), loop_.http()));
    const std::string folder = targets::FolderOf(work.target);
    while (!context.stopped()) {
      TENURE_ASSIGN_OR_RETURN(const store::EventPage page,
                              store_.TakePage(context.fence(), id, batch_, /*planned=*/true));
      if (page.nothing) break;
      if (!page.events.empty()) {
        const absl::Status written = Write(*sink, folder, page, context);
        Count(written.ok() ? "written" : "failed");
        TENURE_RETURN_IF_ERROR(written);
      }
      TENURE_RETURN_IF_ERROR(store_.FinishPage(context.fence(), id, page, page.events.size(), {}, ""));
      Metrics::Add(metrics_.target_events, {{"purpose", std::string(kPurpose)}, {"outcome", "accepted"}},
                   static_cast<double>(page.events.size()));
      if (!page.more) break;
    }
    waiting_.erase(id);
    return absl::ZeroDuration();
  }

  absl::Status Write(targets::ObjectSink& sink, const std::string& folder, const store::EventPage& page,
                     RunContext& context) {
    std::string lines;
    for (const store::JobEvent& event : page.events) absl::StrAppend(&lines, targets::EventJson(event), "\n");
    const int64_t last = page.first + static_cast<int64_t>(page.events.size()) - 1;
    const std::string name = absl::StrFormat("%s/events/%020d-%020d.jsonl", folder, page.first, last);
    return targets::PutVerified(sink, name, lines, "application/jsonl", context.stop());
  }

  void Count(const char* outcome) {
    Metrics::Add(metrics_.target_objects, {{"purpose", std::string(kPurpose)}, {"outcome", outcome}});
  }

  store::Store& store_;
  Clock& clock_;
  Metrics& metrics_;
  const int batch_;
  std::map<int64_t, Clock::TimePoint> waiting_;  // By target: since when it has events.
  Clock::TimePoint next_rotation_{};
  targets::TargetLoop loop_;
};

}  // namespace

WorkerEntry EventLogWorker() {
  return {.name = "event-log",
          .help = "writes events of jobs to directories and buckets",
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<EventLog>(dependencies);
          }};
}

}  // namespace tenure::background
