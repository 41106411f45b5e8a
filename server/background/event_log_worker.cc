// Event log: writes the events of jobs as JSON lines, one object a flush. Layer: background.
//
// A page of events is fixed in the database before its object is written, under a name made of the events' sequence
// numbers; then the object is read back, and only then the target's place is moved, in the leader's term. So whoever
// goes on after a crash writes the same object with the same bytes under the same name: in order, no doubles, no gaps.
#include <algorithm>
#include <optional>

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
              [this](const targets::Visit& visit) { return Serve(visit); }) {}

  absl::Status Run(RunContext& context) override {
    return loop_.Run(context, [&]() -> absl::Status {
      if (clock_.Now() < next_rotation_) return absl::OkStatus();
      next_rotation_ = clock_.Now() + kRotateInterval;
      return store_.RotateOutbox(context.fence());
    });
  }

 private:
  absl::StatusOr<absl::Duration> Serve(const targets::Visit& visit) {
    const store::TargetWork& work = visit.work;
    const int64_t id = work.target.id;
    std::optional<Clock::TimePoint>& gathering = gathering_.Of(id);
    if (!work.fresh) {
      gathering.reset();
      return absl::ZeroDuration();
    }
    // Events gather from when the first of them was seen.
    if (!gathering) gathering = clock_.Now();
    const absl::Duration waited = absl::FromChrono(clock_.Now() - *gathering);
    if (waited < work.target.settings.interval.value_or(store::kEventLogInterval)) return waited;
    TENURE_ASSIGN_OR_RETURN(const std::unique_ptr<targets::ObjectSink> sink,
                            targets::MakeSink(work.target.settings, visit.access, visit.http));
    const std::string folder = targets::FolderOf(work.target);
    while (!visit.stopped()) {
      TENURE_ASSIGN_OR_RETURN(const store::EventPage page, store_.TakePage(visit.fence, id, batch_, /*planned=*/true));
      if (page.nothing) break;
      if (!page.events.empty()) {
        const absl::Status written = Write(*sink, folder, page, visit.stop);
        Count(written.ok() ? "written" : "failed");
        TENURE_RETURN_IF_ERROR(written);
      }
      TENURE_RETURN_IF_ERROR(store_.FinishPage(visit.fence, id, page, page.events.size(), {}, ""));
      Metrics::Add(metrics_.target_events, {{"purpose", std::string(kPurpose)}, {"outcome", "accepted"}},
                   static_cast<double>(page.events.size()));
      if (!page.more) break;
    }
    gathering.reset();
    return absl::ZeroDuration();
  }

  absl::Status Write(targets::ObjectSink& sink, const std::string& folder, const store::EventPage& page,
                     const std::stop_token& stop) {
    std::string lines;
    for (const store::JobEvent& event : page.events) absl::StrAppend(&lines, targets::EventJson(event), "\n");
    const int64_t last = page.first + static_cast<int64_t>(page.events.size()) - 1;
    const std::string name = absl::StrFormat("%s/events/%020d-%020d.jsonl", folder, page.first, last);
    return targets::PutVerified(sink, name, lines, "application/jsonl", stop);
  }

  void Count(const char* outcome) {
    Metrics::Add(metrics_.target_objects, {{"purpose", std::string(kPurpose)}, {"outcome", outcome}});
  }

  store::Store& store_;
  Clock& clock_;
  Metrics& metrics_;
  const int batch_;
  targets::PerTarget<std::optional<Clock::TimePoint>> gathering_;  // Since when it has events.
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
