#include "server/engine/outcome_waiters.h"

#include <algorithm>
#include <utility>

#include "server/base/status.h"

namespace tenure::engine {
namespace {

constexpr auto kAnswerBefore = std::chrono::milliseconds(50);

}  // namespace

struct OutcomeWaiters::Waiter {
  store::JobId id;  // Under mu_ while it is listed.
  Callback<store::Job> done;
  Timers::Id timer = 0;
  bool removed = false;
};

class OutcomeWaiters::Handle : public PollHandle {
 public:
  Handle(OutcomeWaiters* waiters, WaiterPtr waiter) : waiters_(waiters), waiter_(std::move(waiter)) {}
  void Cancel() override {
    if (waiters_->Remove(waiter_)) waiter_->done(absl::CancelledError("the caller has gone"));
  }

 private:
  OutcomeWaiters* waiters_;
  WaiterPtr waiter_;
};

std::shared_ptr<PollHandle> OutcomeWaiters::Wait(const store::JobId& id, absl::Duration wait, Deadline deadline,
                                                 Callback<store::Job> done) {
  auto waiter = std::make_shared<Waiter>();
  waiter->id = id;
  waiter->done = std::move(done);
  auto handle = std::make_shared<Handle>(this, waiter);
  Clock::TimePoint ends = timers_.clock().Now() + absl::ToChronoMicroseconds(wait);
  if (deadline != Deadline::max()) ends = std::min(ends, deadline - kAnswerBefore);
  bool full = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    full = parked_ >= static_cast<size_t>(options_.max_polls);
    if (!full) {
      waiters_[id.queue][id].push_back(waiter);
      ++parked_;
      waiter->timer = timers_.At(ends, [this, waiter] {
        if (Remove(waiter)) executor_.Post([this, waiter] { ReadAndAnswer(waiter); });
      });
    }
  }
  if (full) {
    waiter->done(MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_POLLS",
                           "the daemon has as many long polls as it takes; try another replica", {}, absl::Seconds(1)));
    return handle;
  }
  executor_.Post([this, waiter] { AnswerIfEnded(waiter); });
  return handle;
}

absl::StatusOr<store::Job> OutcomeWaiters::Read(store::JobId id) {
  for (;;) {
    absl::StatusOr<store::Job> job = store_.Get(id);
    if (job.ok() && job->forwarded_to.empty()) return job;
    if (!job.ok() && job.status().code() != absl::StatusCode::kNotFound) return job;
    // The link may outlive the record.
    TENURE_ASSIGN_OR_RETURN(const std::vector<store::JobId> now, store_.WhereNow({&id, 1}));
    if (now[0] == id) return job;
    id = now[0];
  }
}

void OutcomeWaiters::AnswerIfEnded(const WaiterPtr& waiter) {
  for (;;) {
    store::JobId id;
    {
      std::lock_guard<std::mutex> lock(mu_);
      id = waiter->id;
    }
    absl::StatusOr<store::Job> job = Read(id);
    if (!job.ok() || store::IsFinal(job->state)) {
      if (Remove(waiter)) waiter->done(std::move(job));
      return;
    }
    std::lock_guard<std::mutex> lock(mu_);
    if (waiter->removed || job->id == waiter->id) return;  // Waits on.
    // Listed under the id that it has become, it hears of its end; and that may have come before: look once more.
    Unlist(waiter);
    waiter->id = job->id;
    waiters_[waiter->id.queue][waiter->id].push_back(waiter);
  }
}

void OutcomeWaiters::ReadAndAnswer(const WaiterPtr& waiter) { waiter->done(Read(waiter->id)); }

bool OutcomeWaiters::Remove(const WaiterPtr& waiter) {
  Timers::Id timer = 0;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (waiter->removed) return false;
    waiter->removed = true;
    timer = waiter->timer;
    --parked_;
    Unlist(waiter);
  }
  timers_.Cancel(timer);
  return true;
}

void OutcomeWaiters::Unlist(const WaiterPtr& waiter) {
  auto queue = waiters_.find(waiter->id.queue);
  if (queue == waiters_.end()) return;
  auto of_job = queue->second.find(waiter->id);
  if (of_job != queue->second.end()) {
    std::erase(of_job->second, waiter);
    if (of_job->second.empty()) queue->second.erase(of_job);
  }
  if (queue->second.empty()) waiters_.erase(queue);
}

void OutcomeWaiters::Ended(const std::vector<store::JobId>& ids) {
  std::vector<WaiterPtr> ended;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (waiters_.empty()) return;
    for (const store::JobId& id : ids) {
      auto queue = waiters_.find(id.queue);
      if (queue == waiters_.end()) continue;
      auto of_job = queue->second.find(id);
      if (of_job != queue->second.end()) ended.insert(ended.end(), of_job->second.begin(), of_job->second.end());
    }
  }
  for (const WaiterPtr& waiter : ended) executor_.Post([this, waiter] { AnswerIfEnded(waiter); });
}

void OutcomeWaiters::EndedSomewhere(int32_t queue) {
  std::vector<store::JobId> ids;
  {
    std::lock_guard<std::mutex> lock(mu_);
    auto of_queue = waiters_.find(queue);
    if (of_queue == waiters_.end()) return;
    if (!asking_.insert(queue).second) {
      ask_again_.insert(queue);
      return;
    }
    for (const auto& [id, unused] : of_queue->second) ids.push_back(id);
  }
  executor_.Post([this, queue, ids = std::move(ids)] {
    absl::StatusOr<std::vector<store::JobId>> ended = store_.Ended(ids);
    bool again = false;
    {
      std::lock_guard<std::mutex> lock(mu_);
      asking_.erase(queue);
      again = ask_again_.erase(queue) > 0;
    }
    if (ended.ok()) Ended(*ended);
    // After a failure the next event, or the waiter's own end, asks again.
    if (again) EndedSomewhere(queue);
  });
}

void OutcomeWaiters::Drain() {
  std::vector<WaiterPtr> all;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (const auto& [unused, of_queue] : waiters_) {
      for (const auto& [id, waiting] : of_queue) all.insert(all.end(), waiting.begin(), waiting.end());
    }
  }
  for (const WaiterPtr& waiter : all) {
    if (Remove(waiter)) executor_.Post([this, waiter] { ReadAndAnswer(waiter); });
  }
}

size_t OutcomeWaiters::parked() const {
  std::lock_guard<std::mutex> lock(mu_);
  return parked_;
}

}  // namespace tenure::engine
