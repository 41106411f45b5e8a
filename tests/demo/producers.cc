// Producers: see the header. Layer: tests.
#include "producers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "records.h"
#include "tenure/client.h"
#include "worker.h"

namespace tenure::demo {
namespace {

// One job in so many takes a while, so that the worker that is killed holds some for certain.
constexpr int kSlowEvery = 20;
constexpr int kSlowMillis = 100;

}  // namespace

Producers::Producers(std::string server, int jobs, std::function<void()> done)
    : server_(std::move(server)), done_(std::move(done)) {
  for (int producer = 0; producer < kProducers; ++producer) {
    const int share = jobs / kProducers + (producer < jobs % kProducers ? 1 : 0);
    threads_.emplace_back([this, producer, share] { Produce(producer, share); });
  }
}

Producers::~Producers() { Stop(); }

void Producers::Stop() { stop_.request_stop(); }

void Producers::NoteCompleted(int64_t jobs) {
  {
    const std::lock_guard lock(mutex_);
    in_flight_ -= jobs;
  }
  room_.notify_all();
}

absl::Status Producers::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

std::vector<std::string> Producers::TakeAccepted() {
  const std::lock_guard lock(mutex_);
  return std::move(accepted_);
}

void Producers::Produce(int producer, int jobs) {
  const absl::Status status = EnqueueAll(producer, jobs);
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    status_.Update(status);
    last = --running_ == 0;
  }
  if (last) done_();
}

bool Producers::AwaitRoom(int jobs) {
  std::unique_lock lock(mutex_);
  if (!room_.wait(lock, stop_.get_token(), [&] { return in_flight_ + jobs <= kWindow; })) return false;
  in_flight_ += jobs;
  return true;
}

absl::Status Producers::EnqueueAll(int producer, int jobs) {
  client::ClientOptions options;
  options.targets = {server_};
  options.generate_idempotency_keys =
      true;  // So that a call whose reply was lost is repeated without making jobs twice.
  absl::StatusOr<client::Client> client = client::Client::Connect(options);
  if (!client.ok()) return client.status();

  for (int made = 0; made < jobs;) {
    const int count = std::min(kBatch, jobs - made);
    if (!AwaitRoom(count)) return absl::CancelledError("stopped");
    const int64_t sent = NowNanos();
    std::vector<client::JobSpec> specs(static_cast<size_t>(count));
    for (client::JobSpec& spec : specs) {
      spec.queue = kQueue;
      spec.kind = kKind;
      const bool slow = made++ % kSlowEvery == producer;
      spec.payload = client::Payload::Text(absl::StrCat(sent, " ", slow ? kSlowMillis : 0));
    }
    int64_t none = 0;
    first_sent_.compare_exchange_strong(none, sent);
    const auto results = client->EnqueueBatch(specs, {.timeout = {}, .stop = stop_.get_token()});
    const std::lock_guard lock(mutex_);
    for (const auto& result : results) {
      if (!result.ok())
        return absl::Status(result.status().code(), absl::StrCat("enqueue: ", result.status().message()));
      accepted_.push_back(result->job_id);
    }
    accepted_count_ += count;
  }
  return absl::OkStatus();
}

}  // namespace tenure::demo
