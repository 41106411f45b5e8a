// Inventory: lists the live jobs of queues as compressed CSV, again and again, each time in a folder of its own whose
// manifest comes last: a folder without a manifest is one that was not finished. Layer: background.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "server/background/targets/digest.h"
#include "server/background/targets/event_json.h"
#include "server/background/targets/gzip.h"
#include "server/background/targets/object_sink.h"
#include "server/background/targets/target_loop.h"
#include "server/background/workers.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"inventory.poll_interval", "How soon, at the latest, a listing that is due begins", TunableUnit::kDuration,
     kSecond, 20 * kMillisecond, kMinute},
    {"inventory.batch", "Jobs read at a time", TunableUnit::kRows, 2000, 1, 20'000},
};

constexpr std::string_view kPurpose = "inventory";
constexpr std::string_view kHead =
    "id,queue,state,kind,priority,tenant,attempt,failures,crashes,releases,snoozes,holder,due_time,create_time,"
    "update_time,start_time,expire_time,payload_bytes,content_type,error_type,error_message,effect_key,retry_of\r\n";

std::string_view StateName(store::JobState state) {
  switch (state) {
    case store::JobState::kScheduled:
      return "scheduled";
    case store::JobState::kBlocked:
      return "blocked";
    case store::JobState::kReady:
      return "ready";
    case store::JobState::kLeased:
      return "leased";
    case store::JobState::kSuspended:
      return "suspended";
    default:
      return store::OutcomeName(state);
  }
}

// RFC 4180: quoted where it must be.
std::string Cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string Row(const store::Job& job, const std::string& queue, int64_t payload_bytes) {
  const auto time = [](const std::optional<absl::Time>& at) { return at ? targets::TimeText(*at) : std::string(); };
  const absl::string_view state(StateName(job.state).data(), StateName(job.state).size());
  return absl::StrCat(
      absl::StrCat(job.id.ToString(), ",", Cell(queue), ",", state, ",", Cell(job.kind), ",", job.priority, ",",
                   Cell(job.tenant), ",", job.attempt, ",", job.failures, ",", job.crashes),
      absl::StrCat(",", job.releases, ",", job.snoozes, ",", Cell(job.lease ? job.lease->worker : ""), ",",
                   targets::TimeText(job.due), ",", targets::TimeText(job.created), ",",
                   targets::TimeText(job.updated)),
      absl::StrCat(",", time(job.started), ",", time(job.expires), ",", payload_bytes, ",",
                   Cell(job.payload.content_type), ",", Cell(job.error ? job.error->type : "")),
      absl::StrCat(",", Cell(job.error ? job.error->message : ""), ",", Cell(job.effect_key), ",", job.retry_of,
                   "\r\n"));
}

class Inventory : public Worker {
 public:
  explicit Inventory(const Dependencies& d)
      : store_(*d.store),
        metrics_(*d.metrics),
        batch_(static_cast<int>(d.tunables->Count("inventory.batch"))),
        loop_(*d.store, *d.clock, *d.metrics, *d.target_access, store::TargetPurpose::kInventory,
              d.tunables->Duration("inventory.poll_interval"),
              [this](const targets::Visit& visit) { return Serve(visit); }) {}

  absl::Status Run(RunContext& context) override { return loop_.Run(context); }

 private:
  absl::StatusOr<absl::Duration> Serve(const targets::Visit& visit) {
    const store::TargetWork& work = visit.work;
    if (!work.next_run || *work.next_run > absl::ZeroDuration()) return absl::ZeroDuration();
    TENURE_ASSIGN_OR_RETURN(const std::unique_ptr<targets::ObjectSink> sink,
                            targets::MakeSink(work.target.settings, visit.access, visit.http));
    const absl::Status written = Write(*sink, visit);
    if (!written.ok()) Count("failed");
    TENURE_RETURN_IF_ERROR(written);
    const absl::Duration interval = work.target.settings.interval.value_or(store::kInventoryInterval);
    TENURE_RETURN_IF_ERROR(store_.NoteTarget(visit.fence, work.target.id, "", interval));
    return absl::ZeroDuration();
  }

  absl::Status Write(targets::ObjectSink& sink, const targets::Visit& visit) {
    const store::TargetWork& work = visit.work;
    const std::string began = absl::FormatTime("%Y-%m-%dT%H%M%E3SZ", absl::Now(), absl::UTCTimeZone());
    const std::string place = absl::StrCat(targets::FolderOf(work.target), "/inventory/", began);
    TENURE_ASSIGN_OR_RETURN(const std::vector<store::Queue> queues, store_.LoadQueues(work.queue_ids));
    nlohmann::ordered_json manifest = {
        {"target", work.target.name}, {"began", began}, {"queues", nlohmann::json::array()}};
    for (const store::Queue& queue : queues) {
      targets::Gzip gzip;
      gzip.Append(kHead);
      int64_t after = 0, jobs = 0;
      for (bool more = true; more;) {
        if (visit.stopped()) return absl::CancelledError("stopped");
        TENURE_ASSIGN_OR_RETURN(const store::LivePage page, store_.ReadLive(queue.id, after, batch_));
        for (size_t i = 0; i < page.jobs.size(); ++i) {
          gzip.Append(Row(page.jobs[i], queue.name, page.payload_sizes[i]));
        }
        jobs += static_cast<int64_t>(page.jobs.size());
        after = page.after;
        more = page.more;
      }
      const std::string name = absl::StrCat(targets::SegmentOf(queue.name), ".csv.gz"), bytes = gzip.Finish();
      TENURE_RETURN_IF_ERROR(
          targets::PutVerified(sink, absl::StrCat(place, "/", name), bytes, "application/gzip", visit.stop));
      Count("written");
      manifest["queues"].push_back({{"queue", queue.name},
                                    {"jobs", jobs},
                                    {"name", name},
                                    {"bytes", bytes.size()},
                                    {"sha256", targets::Hex(targets::Sha256(bytes))}});
    }
    TENURE_RETURN_IF_ERROR(targets::PutVerified(sink, absl::StrCat(place, "/manifest.json"), manifest.dump(2) + "\n",
                                                "application/json", visit.stop));
    Count("written");
    return absl::OkStatus();
  }

  void Count(const char* outcome) {
    Metrics::Add(metrics_.target_objects, {{"purpose", std::string(kPurpose)}, {"outcome", outcome}});
  }

  store::Store& store_;
  Metrics& metrics_;
  const int batch_;
  targets::TargetLoop loop_;
};

}  // namespace

WorkerEntry InventoryWorker() {
  return {.name = "inventory",
          .help = "lists live jobs of queues to directories and buckets",
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<Inventory>(dependencies);
          }};
}

}  // namespace tenure::background
