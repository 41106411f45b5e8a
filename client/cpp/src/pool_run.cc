// PoolRun's beginning and end. See pool_run.h.
//
// The order of the end: no new claims, and what has not started goes back at once, for other workers to take ->
// handlers may finish (grace) -> their stop_tokens are triggered (stop_wait) -> those that still run are left behind,
// their jobs keep the rest of their leases -> the last settles are answered (flush_wait), under leases that are
// extended all the while -> everything stops.
#include "pool_run.h"

#include <algorithm>
#include <utility>

#include "convert.h"

namespace tenure::client::internal {
namespace {

using Clock = std::chrono::steady_clock;

std::shared_ptr<SlotLimiter> LimiterOf(const WorkerPoolOptions& options) {
  if (options.limiter) return options.limiter;
  return SlotLimiter::Make({options.slots, options.reservations, options.slots_per_tenant});
}

}  // namespace

PoolRun::Visit::Visit(PoolRun& run) : run_(run) {
  std::lock_guard lock(run_.mutex_);
  entered_ = !run_.closed_;
  if (entered_) ++run_.visitors_;
}

PoolRun::Visit::~Visit() {
  if (!entered_) return;
  std::lock_guard lock(run_.mutex_);
  if (--run_.visitors_ == 0) run_.state_changed_.notify_all();
}

PoolRun::PoolRun(std::shared_ptr<PoolShared> shared, PoolMode mode)
    : shared_(std::move(shared)),
      options_(shared_->options),
      mode_(mode),
      connection_(ClientAccess::ConnectionOf(shared_->client)),
      limiter_(LimiterOf(options_)),
      // Room for settles under way, so that claims overlap with them; a bound, so that a database that is away does not
      // fill memory.
      max_unsettled_(std::max(4 * (options_.slots + options_.prefetch.value_or(AutoPrefetch::kMost)), 1'000)),
      started_(Clock::now()),
      auto_prefetch_(options_.slots, options_.lease) {
  claim_lines_[0].main = true;
}

void PoolRun::Wire() {
  // The parts hold on to the run weakly: a call that comes back late finds nobody.
  const std::weak_ptr<PoolRun> weak = weak_from_this();
  const std::shared_ptr<PoolShared> shared = shared_;
  LeaseKeeperOptions keeping;
  keeping.lease = options_.lease;
  keeping.on_change = [weak](const std::shared_ptr<HeldLease>& lease, const absl::Status& why) {
    if (const auto self = weak.lock()) self->OnLeaseChange(lease, why);
  };
  keeping.on_error = [shared](const absl::Status& error) {
    Count(shared->counters.extend_errors);
    shared->Report("extend", error);
  };
  keeper_ = std::make_shared<KeeperCore>(connection_, std::move(keeping),
                                         KeeperCore::Counters{[shared] { Count(shared->counters.extend_calls); }});
  settler_ =
      std::make_shared<Settler>(connection_, SettlerHooks{.answered =
                                                              [weak](std::vector<SettleAnswer> answers) {
                                                                if (const auto self = weak.lock())
                                                                  self->OnSettled(std::move(answers));
                                                              },
                                                          .retried =
                                                              [weak, shared](const absl::Status& error) {
                                                                Count(shared->counters.settle_retries);
                                                                const auto self = weak.lock();
                                                                if (!self) return;
                                                                const Visit visit(*self);
                                                                if (visit) shared->Report("settle", error);
                                                              },
                                                          .sent = [shared] { Count(shared->counters.settle_calls); }});
  if (options_.limiter) {
    limiter_subscription_ = options_.limiter->OnRelease([weak] {
      const auto self = weak.lock();
      if (!self) return;
      {
        std::lock_guard lock(self->mutex_);
        self->WakeRunner();
      }
      self->MaybeClaim();
    });
  }
}

absl::Status PoolRun::Run(std::stop_token stop) {
  Wire();
  keeper_->Start();
  {
    std::stop_callback on_stop(stop, [this] {
      std::lock_guard lock(mutex_);
      stop_requested_ = true;
      state_changed_.notify_all();
    });
    if (mode_ == PoolMode::kServe) AwaitNotices();
    MaybeClaim();
    std::unique_lock lock(mutex_);
    state_changed_.wait(lock, [this] {
      if (stop_requested_ || !fatal_.ok()) return true;
      if (mode_ == PoolMode::kServe) return false;
      return held_.empty() && arriving_ == 0 && !ClaimsUnderWay() && (mode_ == PoolMode::kOne ? claimed_once_ : dry_);
    });
  }
  return Shutdown();
}

void PoolRun::NoteProgress() {
  if (stopping_ || !fatal_.ok() || (mode_ != PoolMode::kServe && held_.empty())) state_changed_.notify_all();
}

void PoolRun::StopClaiming(std::unique_lock<std::mutex>& lock) {
  stopping_ = true;
  dry_ = false;
  std::vector<RunPtr> back;
  for (auto& [priority, runs] : waiting_) {
    for (RunPtr& run : runs) {
      run->phase = RunPhase::kSettling;
      back.push_back(std::move(run));
    }
  }
  waiting_.clear();
  waiting_count_ = 0;
  unsettled_ += static_cast<int>(back.size());
  shared_->counters.waiting.store(0, std::memory_order_relaxed);
  shared_->counters.unsettled.store(unsettled_, std::memory_order_relaxed);
  claim_not_before_ = {};
  std::vector<uint64_t> under_way;
  for (const ClaimLine& line : claim_lines_) {
    if (line.in_flight) under_way.push_back(line.number);
  }
  lock.unlock();
  for (const uint64_t number : under_way) EndPoll(number);
  Release(back, Duration::zero());
  MaybeClaim();  // Collects at once if the last claim's answer was lost before.
  lock.lock();
}

void PoolRun::EndPoll(uint64_t number) {
  std::shared_ptr<AsyncCall> poll;
  {
    std::lock_guard lock(mutex_);
    const auto line = std::find_if(claim_lines_.begin(), claim_lines_.end(),
                                   [number](const ClaimLine& one) { return one.in_flight && one.number == number; });
    if (line == claim_lines_.end()) return;
    poll = line->call;
  }
  if (poll) return poll->Cancel();
  // It is being sent at this very moment: its handle is not known yet.
  timer_.After(std::chrono::milliseconds(10), [this, number] { EndPoll(number); });
}

void PoolRun::AbandonHandlers(std::unique_lock<std::mutex>& lock) {
  std::vector<std::pair<RunPtr, Duration>> left;
  const SteadyTime now = Clock::now();
  for (const auto& [lease, run] : held_) {
    if (run->phase != RunPhase::kRunning) continue;
    run->phase = RunPhase::kAbandoned;
    left.emplace_back(run, std::max<Duration>(run->lease->end() - now, Duration::zero()));
  }
  abandoned_ = static_cast<int>(left.size());
  if (left.empty()) return;
  Count(shared_->counters.abandoned, abandoned_);
  // A token that is stale already has nothing to give back.
  for (const auto& [run, rest] : left) {
    const LeaseState state = run->lease->state();
    if (state == LeaseState::kLost || state == LeaseState::kCancelled) held_.erase(run->lease.get());
  }
  lock.unlock();
  for (const auto& [run, rest] : left) {
    const LeaseState state = run->lease->state();
    if (state == LeaseState::kLost || state == LeaseState::kCancelled) {
      keeper_->Forget(run->lease);
    } else {
      Release({run}, rest);
    }
    shared_->Log(LogLevel::kError, "job " + run->claimed.job.id + " (" + run->claimed.job.kind +
                                       "): its handler did not stop within the grace period and is left behind");
  }
  lock.lock();
}

absl::Status PoolRun::Shutdown() {
  std::unique_lock lock(mutex_);
  const auto none_running = [this] { return running_ == 0; };
  StopClaiming(lock);
  state_changed_.wait_until(lock, Clock::now() + options_.grace, none_running);
  if (running_ > 0) {
    std::vector<RunPtr> stuck;
    for (const auto& [lease, run] : held_) {
      if (run->phase == RunPhase::kRunning) stuck.push_back(run);
    }
    lock.unlock();
    for (const RunPtr& run : stuck) {
      run->stopped_by_shutdown.store(true, std::memory_order_release);
      run->lease->RequestStop();
    }
    lock.lock();
    state_changed_.wait_until(lock, Clock::now() + options_.stop_wait, none_running);
    AbandonHandlers(lock);
  }
  const bool flushed = state_changed_.wait_until(lock, Clock::now() + options_.flush_wait, [this] {
    return held_.empty() && arriving_ == 0 && !ClaimsUncollected();
  });
  const int unsettled = static_cast<int>(held_.size());
  const bool uncollected = !flushed && ClaimsUncollected();
  const absl::Status fatal = fatal_;
  const int abandoned = abandoned_;
  lock.unlock();
  Close();
  if (!fatal.ok()) return fatal;
  if (abandoned == 0 && flushed) return absl::OkStatus();
  std::string message = "the pool did not shut down cleanly:";
  if (abandoned > 0) message += " " + std::to_string(abandoned) + " handlers did not stop and are left behind;";
  if (unsettled > 0)
    message += " " + std::to_string(unsettled) + " jobs wait for their leases to run out, their settles unanswered;";
  if (uncollected) message += " the answer to the last claim could not be collected;";
  message.pop_back();
  const absl::Status status = absl::DeadlineExceededError(message);
  shared_->Report("shutdown", status);
  return status;
}

void PoolRun::Close() {
  std::vector<std::shared_ptr<AsyncCall>> claims;
  std::shared_ptr<AsyncCall> notices;
  {
    std::unique_lock lock(mutex_);
    closed_ = true;
    for (const ClaimLine& line : claim_lines_) {
      if (line.call) claims.push_back(line.call);
    }
    notices = notices_call_;
    runners_exit_ = true;
    work_.notify_all();
    // No hook of the user's runs any more once these have left.
    state_changed_.wait(lock, [this] { return visitors_ == 0; });
  }
  limiter_subscription_.reset();
  for (const auto& claim : claims) claim->Cancel();
  if (notices) notices->Cancel();
  timer_.Stop();
  settler_->Stop();
  keeper_->Stop();
  std::list<std::thread> threads;
  {
    std::unique_lock lock(mutex_);
    // Tasks of an executor find runners_exit_ whenever they run; threads are waited for, except those inside a handler.
    if (!options_.executor) state_changed_.wait(lock, [this] { return runners_ <= running_; });
    threads.swap(threads_);
    for (std::thread& thread : threads) {
      const bool exited = std::find(exited_.begin(), exited_.end(), thread.get_id()) != exited_.end();
      if (!exited) thread.detach();
    }
    held_.clear();
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
}

void PoolRun::OnLeaseChange(const std::shared_ptr<HeldLease>& lease, const absl::Status& why) {
  RunPtr run;
  const LeaseState state = lease->state();
  {
    std::lock_guard lock(mutex_);
    const auto found = held_.find(lease.get());
    if (found == held_.end()) return;
    run = found->second;
    // While a settle is under way it may be that very settle which ended the lease: its own answer decides.
    if (run->phase == RunPhase::kSettling || run->phase == RunPhase::kDone) return;
    if (state == LeaseState::kSettledElsewhere || (run->loss_announced && state != LeaseState::kRunOut)) return;
    if (state != LeaseState::kRunOut) run->loss_announced = true;
  }
  AnnounceLoss(*run, state, why);
}

void PoolRun::AnnounceLoss(const JobRun& run, LeaseState state, const absl::Status& why) {
  switch (state) {
    case LeaseState::kRunOut:
      Count(shared_->counters.run_out);
      break;
    case LeaseState::kCancelled:
      Count(shared_->counters.cancelled);
      break;
    default:
      Count(shared_->counters.lost);
      break;
  }
  if (options_.hooks.lost) shared_->Guard([&] { options_.hooks.lost(run.claimed.job, state, why); });
}

}  // namespace tenure::client::internal
