// Export: writes days of history and of dead letters as compressed JSON lines, and drops them. Layer: background.
//
// A day's objects have names made of the day and a number, and are read back; its manifest, which names them all with
// their sizes and hashes, comes last. Then it is written down that the target has the day, with its number of rows, and
// only when every export target has it with all the rows that are there it is dropped. Cut short anywhere, it begins
// the day anew and writes the same objects.
#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "server/background/targets/digest.h"
#include "server/background/targets/gzip.h"
#include "server/background/targets/job_json.h"
#include "server/background/targets/object_sink.h"
#include "server/background/targets/target_loop.h"
#include "server/background/workers.h"
#include "server/base/logging.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"export.interval", "How often days that are old enough are looked for", TunableUnit::kDuration, kMinute,
     100 * kMillisecond, 6 * kHour},
    {"export.object_rows", "Jobs in one object at most", TunableUnit::kRows, 100'000, 1, 1'000'000},
};

constexpr int kReadRows = 100;             // At a time: each may have a payload and a result of megabytes.
constexpr size_t kObjectBytes = 32 << 20;  // Of an object, compressed.
constexpr std::string_view kPurpose = "export";

class Export : public Worker {
 public:
  explicit Export(const Dependencies& d)
      : store_(*d.store),
        metrics_(*d.metrics),
        object_rows_(d.tunables->Count("export.object_rows")),
        loop_(*d.store, *d.clock, *d.metrics, *d.target_access, store::TargetPurpose::kExport,
              d.tunables->Duration("export.interval"), [this](const targets::Visit& visit) { return Serve(visit); }) {}

  absl::Status Run(RunContext& context) override { return loop_.Run(context); }

 private:
  absl::StatusOr<absl::Duration> Serve(const targets::Visit& visit) {
    const store::TargetWork& work = visit.work;
    const int32_t age = work.target.settings.min_age_days.value_or(store::kExportMinAgeDays);
    TENURE_ASSIGN_OR_RETURN(const std::vector<store::DayPartition> days, store_.ListExports(work.target.id, age));
    if (days.empty()) return absl::ZeroDuration();
    TENURE_ASSIGN_OR_RETURN(const std::unique_ptr<targets::ObjectSink> sink,
                            targets::MakeSink(work.target.settings, visit.access, visit.http));
    for (const store::DayPartition& day : days) {
      if (visit.stopped()) break;
      const absl::StatusOr<int64_t> rows = Write(*sink, targets::FolderOf(work.target), day, visit.stop);
      if (!rows.ok()) Count("failed");
      if (!rows.ok()) return rows.status();
      TENURE_RETURN_IF_ERROR(store_.RecordExport(visit.fence, work.target.id, day, *rows));
      TENURE_RETURN_IF_ERROR(store_.NoteTarget(visit.fence, work.target.id, "", std::nullopt));
      TENURE_ASSIGN_OR_RETURN(const bool dropped, Drop(visit.fence, day));
      LogInfo("day exported", {{"target", work.target.name},
                               {"day", day.table},
                               {"rows", absl::StrCat(*rows)},
                               {"dropped", dropped ? "true" : "false"}});
    }
    return absl::ZeroDuration();
  }

  // Answers how many rows the day has.
  absl::StatusOr<int64_t> Write(targets::ObjectSink& sink, const std::string& folder, const store::DayPartition& day,
                                const std::stop_token& stop) {
    const std::string date =
        absl::FormatCivilTime(absl::CivilDay(1970, 1, 1) + static_cast<absl::civil_diff_t>(day.day));
    const std::string place = absl::StrCat(folder, "/", day.parent, "/", date);
    nlohmann::ordered_json manifest = {
        {"table", day.parent}, {"day", date}, {"rows", 0}, {"objects", nlohmann::json::array()}};
    int64_t after = 0, rows = 0;
    for (bool more = true; more;) {
      targets::Gzip gzip;
      int64_t in_object = 0;
      while (in_object < object_rows_ && gzip.size() < kObjectBytes) {
        if (stop.stop_requested()) return absl::CancelledError("stopped");
        const int limit = static_cast<int>(std::min<int64_t>(kReadRows, object_rows_ - in_object));
        TENURE_ASSIGN_OR_RETURN(const std::vector<store::Job> jobs, store_.ReadDay(day, after, limit));
        TENURE_RETURN_IF_ERROR(LearnQueues(jobs));
        for (const store::Job& job : jobs) {
          gzip.Append(targets::EndedJobJson(job, NameOf(job.id.queue)));
          gzip.Append("\n");
          after = job.id.seq;
        }
        in_object += static_cast<int64_t>(jobs.size());
        more = static_cast<int>(jobs.size()) == limit;
        if (!more) break;
      }
      if (in_object == 0) break;
      const std::string name = absl::StrFormat("part-%05d.jsonl.gz", manifest["objects"].size() + 1);
      const std::string bytes = gzip.Finish();
      TENURE_RETURN_IF_ERROR(
          targets::PutVerified(sink, absl::StrCat(place, "/", name), bytes, "application/gzip", stop));
      Count("written");
      manifest["objects"].push_back({{"name", name},
                                     {"rows", in_object},
                                     {"bytes", bytes.size()},
                                     {"sha256", targets::Hex(targets::Sha256(bytes))}});
      rows += in_object;
    }
    manifest["rows"] = rows;
    TENURE_RETURN_IF_ERROR(targets::PutVerified(sink, absl::StrCat(place, "/manifest.json"), manifest.dump(2) + "\n",
                                                "application/json", stop));
    Count("written");
    return rows;
  }

  // Two targets that took a day at the same time do not both drop it.
  absl::StatusOr<bool> Drop(const store::Fence& fence, const store::DayPartition& day) {
    const std::lock_guard<std::mutex> lock(dropping_);
    return store_.DropExported(fence, day);
  }

  absl::Status LearnQueues(const std::vector<store::Job>& jobs) {
    std::set<int32_t> unknown;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const store::Job& job : jobs) {
        if (!queues_.contains(job.id.queue)) unknown.insert(job.id.queue);
      }
    }
    if (unknown.empty()) return absl::OkStatus();
    TENURE_ASSIGN_OR_RETURN(const std::vector<store::Queue> queues,
                            store_.LoadQueues(std::vector<int32_t>(unknown.begin(), unknown.end())));
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const store::Queue& queue : queues) queues_[queue.id] = queue.name;
    return absl::OkStatus();
  }

  std::string NameOf(int32_t queue) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return queues_[queue];
  }

  void Count(const char* outcome) {
    Metrics::Add(metrics_.target_objects, {{"purpose", std::string(kPurpose)}, {"outcome", outcome}});
  }

  store::Store& store_;
  Metrics& metrics_;
  const int64_t object_rows_;
  std::mutex dropping_;
  std::mutex mutex_;
  std::map<int32_t, std::string> queues_;  // Names; a queue is never renamed. Guarded by mutex_.
  targets::TargetLoop loop_;
};

}  // namespace

WorkerEntry ExportWorker() {
  return {.name = "export",
          .help = "writes days of history to directories and buckets, then drops them",
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<Export>(dependencies);
          }};
}

}  // namespace tenure::background
