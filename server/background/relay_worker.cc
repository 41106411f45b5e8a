// Relay: passes jobs of chosen queues on to another Tenure. Layer: background.
//
// It is a worker like any other: claims jobs under leases, enqueues them there, and completes them here with the id
// they have there. Its key there is made of the job's id, so that a job that was sent twice (its answer was lost, the
// daemon died, the lease ran out) is one job there, and the second answer names the first one's id.
#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "server/background/targets/job_json.h"
#include "server/background/targets/target_loop.h"
#include "server/background/workers.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"relay.poll_interval", "How soon, at the latest, a ready job is passed on", TunableUnit::kDuration,
     250 * kMillisecond, 20 * kMillisecond, 10 * kSecond},
    {"relay.batch", "Jobs passed on per request", TunableUnit::kRows, 200, 1, 1000},
    {"relay.timeout", "How long a request may take", TunableUnit::kDuration, 30 * kSecond, 100 * kMillisecond, kMinute},
};

constexpr std::string_view kPurpose = "relay";
constexpr absl::Duration kLease = absl::Minutes(5);         // Longer than any request.
constexpr absl::Duration kHeadInterval = absl::Seconds(1);  // How often a queue is read from its head.
constexpr absl::Duration kRefusedPause = absl::Seconds(5);  // Of a job that the peer cannot take now.
constexpr int64_t kMaxBytes = 2 << 20;                      // Of a claim's payloads, well below what the peer takes.
constexpr int kUnavailable = 14, kResourceExhausted = 8;    // google.rpc.Code.

std::string Text(const nlohmann::json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

class Relay : public Worker {
 public:
  explicit Relay(const Dependencies& d)
      : store_(*d.store),
        clock_(*d.clock),
        metrics_(*d.metrics),
        replica_(d.replica),
        batch_(static_cast<size_t>(d.tunables->Count("relay.batch"))),
        timeout_(d.tunables->Duration("relay.timeout")),
        loop_(*d.store, *d.clock, *d.metrics, *d.target_access, store::TargetPurpose::kRelay,
              d.tunables->Duration("relay.poll_interval"),
              [this](const targets::Visit& visit) { return Serve(visit); }) {}

  absl::Status Run(RunContext& context) override { return loop_.Run(context); }

 private:
  // Where a queue is read next, per priority: what lies before was read, and is looked at again now and then, for what
  // came back or was committed late.
  struct Cursor {
    std::map<int16_t, store::Key> after;
    Clock::TimePoint head_due{};
  };

  using Cursors = std::map<int32_t, Cursor>;  // By queue.

  absl::StatusOr<absl::Duration> Serve(const targets::Visit& visit) {
    const store::TargetWork& work = visit.work;
    Cursors& cursors = cursors_.Of(work.target.id);
    const int32_t replica = replica_();
    if (replica == 0) return absl::ZeroDuration();
    TENURE_ASSIGN_OR_RETURN(const std::vector<store::Queue> queues, store_.LoadQueues(work.queue_ids));
    absl::Duration lag;
    for (const store::Queue& queue : queues) {
      while (!visit.stopped()) {
        TENURE_ASSIGN_OR_RETURN(const std::vector<store::ClaimedJob> jobs,
                                Claim(cursors[queue.id], queue.id, replica, work));
        if (jobs.empty()) break;
        TENURE_RETURN_IF_ERROR(PassOn(visit, queue, jobs));
      }
      TENURE_ASSIGN_OR_RETURN(const absl::Duration waits, Oldest(cursors[queue.id], queue.id));
      if (!queue.paused) lag = std::max(lag, waits);
    }
    return lag;
  }

  absl::StatusOr<std::vector<store::ClaimedJob>> Claim(Cursor& cursor, int32_t queue, int32_t replica,
                                                       const store::TargetWork& work) {
    if (clock_.Now() >= cursor.head_due) {
      cursor.head_due = clock_.Now() + absl::ToChronoNanoseconds(kHeadInterval);
      cursor.after.clear();
      TENURE_ASSIGN_OR_RETURN(const store::Store::Start start, store_.ReadStart());
      for (const auto& [id, priority] : start.ready) {
        if (id == queue) cursor.after[priority] = store::kLowestKey;
      }
    }
    if (cursor.after.empty()) return std::vector<store::ClaimedJob>();
    store::ClaimBatch batch;
    batch.queue = queue;
    batch.replica = replica;
    for (auto it = cursor.after.rbegin(); it != cursor.after.rend(); ++it) {
      batch.ranges.push_back({it->first, it->second, store::kHighestKey});
    }
    batch.workers = {absl::StrCat("relay:", work.target.name)};
    batch.slots.assign(batch_, store::ClaimSlot{0, -1, kLease});
    batch.max_bytes = kMaxBytes;
    TENURE_ASSIGN_OR_RETURN(store::ClaimResult result, store_.Claim(batch));
    for (size_t i = 0; i < result.ranges.size() && i < batch.ranges.size(); ++i) {
      if (result.ranges[i].exhausted) {
        cursor.after.erase(batch.ranges[i].priority);
      } else if (result.ranges[i].last) {
        cursor.after[batch.ranges[i].priority] = *result.ranges[i].last;
      }
    }
    return std::move(result.jobs);
  }

  absl::Status PassOn(const targets::Visit& visit, const store::Queue& queue,
                      const std::vector<store::ClaimedJob>& jobs) {
    const store::TargetWork& work = visit.work;
    targets::HttpRequest request;
    request.url = absl::StrCat(work.target.settings.url, "/tenure.v1.JobService/Enqueue");
    while (absl::StrContains(request.url, "//tenure.v1")) request.url.erase(request.url.find("//tenure.v1"), 1);
    request.timeout = timeout_;
    request.max_response = 4 << 20;
    request.headers = {"Content-Type: application/json"};
    if (!work.target.settings.secret.empty()) {
      request.headers.push_back(absl::StrCat("Authorization: Bearer ", work.target.settings.secret));
    }
    const std::string source = absl::StrCat("relay.", absl::ToUnixMicros(work.target.created), ".");
    request.body = absl::StrCat("{\"jobs\":[",
                                absl::StrJoin(jobs, ",",
                                              [&](std::string* out, const store::ClaimedJob& claimed) {
                                                out->append(targets::RelayedJobJson(
                                                    claimed.job, queue.name, source + claimed.job.id.ToString()));
                                              }),
                                "]}");
    absl::StatusOr<targets::HttpResponse> response = visit.http.Fetch(std::move(request), visit.stop);
    std::string error;
    nlohmann::json answer;
    if (!response.ok()) {
      error = std::string(response.status().message());
    } else {
      answer = nlohmann::json::parse(response->body, nullptr, false);
      const auto results = answer.is_object() ? answer.find("results") : answer.end();
      if (response->status != 200) {
        error = absl::StrCat("the peer answers ", response->status, " ", Text(answer, "message").substr(0, 300));
      } else if (answer.is_discarded() || !answer.is_object() || results == answer.end() || !results->is_array() ||
                 results->size() != jobs.size()) {
        error = "the peer's answer is not that of an Enqueue";
      }
    }
    if (!error.empty()) {
      // Whether they are there is in doubt: they will be sent again, under the same keys.
      std::vector<store::GiveBackItem> back;
      for (const store::ClaimedJob& claimed : jobs) back.push_back({claimed.token, kRefusedPause});
      TENURE_RETURN_IF_ERROR(store_.GiveBack(queue.id, store::Verb::kRelease, back).status());
      Count("refused", jobs.size());
      return absl::UnavailableError(error);
    }
    return Settle(visit, queue, jobs, answer["results"]);
  }

  absl::Status Settle(const targets::Visit& visit, const store::Queue& queue,
                      const std::vector<store::ClaimedJob>& jobs, const nlohmann::json& results) {
    std::vector<store::CompleteItem> done;
    std::vector<store::GiveBackItem> later;
    std::vector<store::FailItem> failed;
    std::string last_error;
    for (size_t i = 0; i < jobs.size(); ++i) {
      const std::string id = Text(results[i], "jobId");
      if (!id.empty()) {
        const nlohmann::json result = {{"peerJobId", id}};
        done.push_back({jobs[i].token, store::Payload{result.dump(), "application/json"}, {}});
        continue;
      }
      const auto found = results[i].is_object() ? results[i].find("error") : results[i].end();
      const nlohmann::json error = found != results[i].end() ? *found : nlohmann::json::object();
      const auto code = error.is_object() ? error.find("code") : error.end();
      const int number = code != error.end() && code->is_number_integer() ? code->get<int>() : kUnavailable;
      last_error = absl::StrCat(Text(error, "reason"), ": ", Text(error, "message")).substr(0, 500);
      if (number == kUnavailable || number == kResourceExhausted) {
        later.push_back({jobs[i].token, kRefusedPause});
      } else {
        failed.push_back({jobs[i].token, {last_error, "RelayRefused", "", 0, {}}, false, std::nullopt});
      }
    }
    if (!done.empty()) TENURE_RETURN_IF_ERROR(store_.Complete(queue.id, done).status());
    if (!later.empty()) TENURE_RETURN_IF_ERROR(store_.GiveBack(queue.id, store::Verb::kRelease, later).status());
    if (!failed.empty()) TENURE_RETURN_IF_ERROR(store_.Fail(queue.id, failed).status());
    Count("accepted", done.size());
    Count("refused", later.size() + failed.size());
    return store_.NoteTarget(visit.fence, visit.work.target.id, last_error, std::nullopt);
  }

  // How long the oldest ready job of a queue has waited.
  absl::StatusOr<absl::Duration> Oldest(const Cursor& cursor, int32_t queue) {
    std::vector<store::ReadyRange> from;
    for (const auto& [priority, after] : cursor.after) {
      from.push_back({queue, priority, store::kLowestKey, store::kHighestKey, 0});
    }
    if (from.empty()) return absl::ZeroDuration();
    TENURE_ASSIGN_OR_RETURN(const auto ages, store_.OldestReady(from));
    absl::Duration oldest;
    for (const auto& age : ages) oldest = std::max(oldest, age.value_or(absl::ZeroDuration()));
    return oldest;
  }

  void Count(const char* outcome, size_t jobs) {
    Metrics::Add(metrics_.target_events, {{"purpose", std::string(kPurpose)}, {"outcome", outcome}},
                 static_cast<double>(jobs));
  }

  store::Store& store_;
  Clock& clock_;
  Metrics& metrics_;
  const std::function<int32_t()> replica_;
  const size_t batch_;
  const absl::Duration timeout_;
  targets::PerTarget<Cursors> cursors_;
  targets::TargetLoop loop_;
};

}  // namespace

WorkerEntry RelayWorker() {
  return {.name = "relay",
          .help = "passes jobs on to another Tenure",
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<Relay>(dependencies);
          }};
}

}  // namespace tenure::background
