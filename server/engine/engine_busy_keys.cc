// EngineImpl: enqueues whose unique or idempotency key another transaction holds. Replicas that use one key at the same
// time hold it for a batch each, which on a busy machine may take longer than a batch waits for a key. So such an
// enqueue is tried again, in a lane of its own that holds up nobody else, before its caller is told.
#include <algorithm>
#include <utility>

#include "server/base/status.h"
#include "server/engine/engine_impl.h"

namespace tenure::engine {
namespace {

constexpr auto kFirstRetry = std::chrono::milliseconds(20);
constexpr auto kLastRetry = std::chrono::milliseconds(200);
// An application may keep its transaction open for ever.
constexpr auto kLongestWait = std::chrono::seconds(2);
// What one more try may take.
constexpr auto kOneTry = std::chrono::milliseconds(200);

}  // namespace

void EngineImpl::NoteBusy(std::span<const store::NewJob> items, std::span<store::EnqueueOutcome> outcomes) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (outcomes[i].status.ok() || DetailsOf(outcomes[i].status).reason != "KEY_BUSY") continue;
    outcomes[i].busy = std::make_shared<store::NewJob>(items[i]);
  }
}

bool EngineImpl::TryAgain(int32_t queue, store::EnqueueOutcome& outcome, Deadline deadline,
                          std::function<void(store::EnqueueOutcome)> done) {
  if (!outcome.busy) return false;
  const Clock::TimePoint until = std::min(deadline, clock_.Now() + kLongestWait);
  if (clock_.Now() + kFirstRetry + kOneTry >= until) {
    Metrics::Add(metrics_.jobs_enqueued, {{"queue", directory_.Name(queue)}, {"outcome", "refused"}});
    return false;
  }
  TryBusy(queue, std::move(outcome.busy), until, kFirstRetry, std::move(done));
  return true;
}

void EngineImpl::TryBusy(int32_t queue, std::shared_ptr<const store::NewJob> job, Clock::TimePoint until,
                         Clock::Duration delay, std::function<void(store::EnqueueOutcome)> done) {
  timers_.After(delay, [this, queue, job, until, delay, done = std::move(done)] {
    busy_lane_.Add(
        queue, {*job}, static_cast<int64_t>(job->payload.data.size()),
        [this, queue, job, until, delay, done](EnqueueLane::Outcomes outcomes) {
          store::EnqueueOutcome outcome;
          if (outcomes.ok()) {
            outcome = std::move((*outcomes)[0]);
          } else {
            outcome.status = outcomes.status();
          }
          const Clock::Duration next = std::min<Clock::Duration>(delay * 2, kLastRetry);
          if (outcome.busy && clock_.Now() + next + kOneTry < until) {
            return TryBusy(queue, job, until, next, done);
          }
          if (outcome.busy) {
            Metrics::Add(metrics_.jobs_enqueued, {{"queue", directory_.Name(queue)}, {"outcome", "refused"}});
          }
          done(std::move(outcome));
        });
  });
}

}  // namespace tenure::engine
