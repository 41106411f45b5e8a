// Audit: see the header. Layer: tests.
#include "audit.h"

#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "records.h"
#include "tenure/client.h"
#include "worker.h"

namespace tenure::demo {
namespace {

constexpr auto kForever = std::chrono::hours(24);  // The demo's own deadline stops it.

}  // namespace

Audit::Audit(std::string server, std::vector<std::string> accepted, std::vector<std::string> records,
             std::function<void()> done)
    : server_(std::move(server)), accepted_(std::move(accepted)), records_(std::move(records)) {
  thread_ = std::jthread([this, done = std::move(done)](std::stop_token stop) {
    status_ = Run(std::move(stop));
    done();
  });
}

absl::Status Audit::Run(std::stop_token stop) {
  client::ClientOptions options;
  options.targets = {server_};
  absl::StatusOr<client::Client> client = client::Client::Connect(options);
  if (!client.ok()) return client.status();

  std::vector<RecordReader> readers;
  for (const std::string& path : records_) readers.emplace_back(path);
  std::unordered_set<std::string> acknowledged;
  for (const std::string& id : accepted_) {
    if (acknowledged.contains(id)) continue;
    for (RecordReader& reader : readers) {
      absl::StatusOr<std::vector<Record>> records = reader.ReadNew();
      if (!records.ok()) return records.status();
      for (Record& record : *records) {
        if (record.step == Step::kSettled) acknowledged.insert(std::move(record.job_id));
      }
    }
    if (acknowledged.contains(id)) continue;
    const absl::StatusOr<client::Job> job = client->WaitForOutcome(id, {.timeout = kForever, .stop = stop});
    if (!job.ok()) return absl::Status(job.status().code(), absl::StrCat("job ", id, ": ", job.status().message()));
  }
  last_outcome_at_ = NowNanos();

  client::JobFilter filter;
  filter.queue = kQueue;
  filter.states = {client::JobState::kCompleted};
  for (const absl::StatusOr<client::Job>& job : client->ListAll(filter, 1000, {.timeout = {}, .stop = stop})) {
    if (!job.ok()) return absl::Status(job.status().code(), absl::StrCat("list: ", job.status().message()));
    completed_.push_back(job->id);
  }
  return absl::OkStatus();
}

}  // namespace tenure::demo
