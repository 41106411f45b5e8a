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
#include "server/store/schedule_timing.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"inventory.poll_interval", "How soon, at the latest, a listing that is due begins", TunableUnit::kDuration,
     kSecond, 20 * kMillisecond, kMinute},
    {"inventory.batch", "Jobs read at a time", TunableUnit::kRows, 2000, 1, 20'000},
};

constexpr std::string_view kPurpose = "inventory";
constexpr size_t kMaxManifest = 1 << 20;
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
  // Where a listing goes, and what comes after it.
  struct Listing {
    std::string when;        // The folder.
    bool scheduled = false;  // `when` is a slot: whoever makes the listing of a slot writes to the same folder.
    std::string tag;         // In the names of its objects, so that two who are at the same folder do not mix.
    absl::Time next;
  };

  static absl::StatusOr<Listing> Plan(const targets::Visit& visit) {
    const store::TargetWork& work = visit.work;
    const store::TargetSettings& settings = work.target.settings;
    const auto name = [](absl::Time at) { return absl::FormatTime("%Y-%m-%dT%H%M%E3SZ", at, absl::UTCTimeZone()); };
    if (settings.cron.empty()) {
      return Listing{name(absl::Now()), false, "", work.now + settings.interval.value_or(store::kInventoryInterval)};
    }
    TENURE_ASSIGN_OR_RETURN(const store::Timing timing, store::Timing::Make(store::TimingOf(settings)));
    // Of the slots that have passed the last one; the others are left out, since the jobs of then are not to be had.
    const store::Timing::Plan plan =
        timing.Due(*work.next_run, work.now, absl::ZeroDuration(), 1, store::Overlap::kAllow);
    return Listing{name(plan.run.empty() ? *work.next_run : plan.run.back()), true, absl::StrCat(".", visit.fence.term),
                   plan.next};
  }

  absl::StatusOr<absl::Duration> Serve(const targets::Visit& visit) {
    const store::TargetWork& work = visit.work;
    if (!work.next_run || *work.next_run > work.now) return absl::ZeroDuration();
    TENURE_ASSIGN_OR_RETURN(const std::unique_ptr<targets::ObjectSink> sink,
                            targets::MakeSink(work.target.settings, visit.access, visit.http));
    TENURE_ASSIGN_OR_RETURN(const Listing listing, Plan(visit));
    const absl::Status written = Write(*sink, visit, listing);
    if (!written.ok()) Count("failed");
    TENURE_RETURN_IF_ERROR(written);
    TENURE_RETURN_IF_ERROR(
        store_.NoteTarget(visit.fence, work.target.id, "", store::NextRun{listing.next, work.target.version}));
    return absl::ZeroDuration();
  }

  // Whether the slot has its manifest: its writer died, or lost its term, before that was written down.
  static absl::StatusOr<bool> IsDone(targets::ObjectSink& sink, const std::string& manifest, const Listing& listing,
                                     const std::stop_token& stop) {
    if (!listing.scheduled) return false;
    const absl::Status read = sink.Read(manifest, kMaxManifest, stop).status();
    if (read.ok()) return true;
    if (absl::IsNotFound(read) || absl::IsPermissionDenied(read)) return false;
    return read;
  }

  absl::Status Write(targets::ObjectSink& sink, const targets::Visit& visit, const Listing& listing) {
    const store::TargetWork& work = visit.work;
    const std::string place = absl::StrCat(targets::FolderOf(work.target), "/inventory/", listing.when);
    const std::string manifest_name = absl::StrCat(place, "/manifest.json");
    TENURE_ASSIGN_OR_RETURN(bool done, IsDone(sink, manifest_name, listing, visit.stop));
    if (done) return absl::OkStatus();
    TENURE_ASSIGN_OR_RETURN(const std::vector<store::Queue> queues, store_.LoadQueues(work.queue_ids));
    nlohmann::ordered_json manifest = {
        {"target", work.target.name}, {"began", targets::TimeText(absl::Now())}, {"queues", nlohmann::json::array()}};
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
      const std::string name = absl::StrCat(targets::SegmentOf(queue.name), listing.tag, ".csv.gz"),
                        bytes = gzip.Finish();
      TENURE_RETURN_IF_ERROR(
          targets::PutVerified(sink, absl::StrCat(place, "/", name), bytes, "application/gzip", visit.stop));
      Count("written");
      manifest["queues"].push_back({{"queue", queue.name},
                                    {"jobs", jobs},
                                    {"name", name},
                                    {"bytes", bytes.size()},
                                    {"sha256", targets::Hex(targets::Sha256(bytes))}});
    }
    // Once more: a leader that was paused meanwhile finds that another one has listed the slot.
    TENURE_ASSIGN_OR_RETURN(done, IsDone(sink, manifest_name, listing, visit.stop));
    if (done) return absl::OkStatus();
    TENURE_RETURN_IF_ERROR(
        targets::PutVerified(sink, manifest_name, manifest.dump(2) + "\n", "application/json", visit.stop));
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
