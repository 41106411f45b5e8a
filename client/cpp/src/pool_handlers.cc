// PoolRun's runners: take a waiting job, call its handler, turn the outcome into a settle. See pool_run.h.
#include <algorithm>
#include <utility>

#include "convert.h"
#include "pool_run.h"
#include "tenure/errors.h"

namespace tenure::client::internal {
namespace {

using Clock = std::chrono::steady_clock;

// A job that no bound admits, or whose handler stopped without having been asked to, should not come straight back.
constexpr Duration kGiveBackDelay = std::chrono::seconds(1);
constexpr Duration kWarnAgain = std::chrono::minutes(5);

}  // namespace

void PoolRun::WakeRunner() {
  if (waiting_count_ == 0) return;
  if (idle_ > 0) {
    work_.notify_one();
    return;
  }
  if (runners_ >= options_.slots) return;
  ++runners_;
  if (options_.executor) {
    // Through the timer: the executor may run the task on the spot, and mutex_ is held here.
    timer_.After(Duration::zero(),
                 [this] { options_.executor([self = shared_from_this()] { self->ExecutorTask(); }); });
  } else {
    threads_.emplace_back([self = shared_from_this()] { self->RunnerThread(); });
  }
}

void PoolRun::RunnerThread() {
  std::unique_lock lock(mutex_);
  while (!runners_exit_) {
    if (RunNext(lock)) continue;
    if (runners_exit_) break;
    ++idle_;
    work_.wait(lock);
    --idle_;
  }
  --runners_;
  exited_.push_back(std::this_thread::get_id());
  state_changed_.notify_all();
}

void PoolRun::ExecutorTask() {
  std::unique_lock lock(mutex_);
  // One job a task: the executor is shared with others.
  const bool ran = !runners_exit_ && RunNext(lock);
  --runners_;
  if (ran) WakeRunner();
  state_changed_.notify_all();
}

PoolRun::RunPtr PoolRun::Pick(std::vector<RunPtr>* unfit) {
  int bound_by_tenant = 0;
  for (auto queue = waiting_.begin(); queue != waiting_.end();) {
    auto& runs = queue->second;
    for (auto at = runs.begin(); at != runs.end();) {
      auto admission = limiter_->TryAcquire(queue->first, (*at)->claimed.job.tenant);
      if (auto* permit = std::get_if<SlotPermit>(&admission)) {
        RunPtr run = std::move(*at);
        runs.erase(at);
        if (runs.empty()) waiting_.erase(queue);
        --waiting_count_;
        run->permit = std::move(*permit);
        return run;
      }
      // Whoever is further down has no higher priority: without a slot for this one there is none for them.
      if (std::get<NotAdmitted>(admission) != NotAdmitted::kTenant) return nullptr;
      // A tenant's surplus may wait in the place of prefetched jobs, not in the place of other tenants' jobs.
      if (++bound_by_tenant > Prefetch()) {
        (*at)->phase = RunPhase::kSettling;
        ++unsettled_;
        --waiting_count_;
        unfit->push_back(std::move(*at));
        at = runs.erase(at);
      } else {
        ++at;
      }
    }
    queue = runs.empty() ? waiting_.erase(queue) : std::next(queue);
  }
  return nullptr;
}

bool PoolRun::RunNext(std::unique_lock<std::mutex>& lock) {
  std::vector<RunPtr> unfit;
  const RunPtr run = stopping_ ? nullptr : Pick(&unfit);
  if (run) {
    run->phase = RunPhase::kRunning;
    run->began = Clock::now();
    ++running_;
    WakeRunner();
  }
  if (!run && unfit.empty()) return false;
  shared_->counters.running.store(running_, std::memory_order_relaxed);
  shared_->counters.waiting.store(waiting_count_, std::memory_order_relaxed);
  shared_->counters.unsettled.store(unsettled_, std::memory_order_relaxed);
  lock.unlock();
  if (!unfit.empty()) {
    Count(shared_->counters.not_admitted, static_cast<int64_t>(unfit.size()));
    Release(unfit, kGiveBackDelay);
  }
  if (run) Work(run);
  MaybeClaim();
  lock.lock();
  return true;
}

void PoolRun::Work(const RunPtr& run) {
  const LeaseState state = run->lease->state();
  if (state == LeaseState::kLost || state == LeaseState::kCancelled) {
    // It ended while it waited for a slot.
    return Finish(run, SettledElsewhere{});
  }
  const auto handler = shared_->wrapped.find(run->claimed.job.kind);
  if (handler != shared_->wrapped.end()) return Finish(run, run->Execute(handler->second));
  if (shared_->wrapped_other) return Finish(run, run->Execute(shared_->wrapped_other));
  SnoozeUnknown(run);
}

void PoolRun::SnoozeUnknown(const RunPtr& run) {
  const std::string& kind = run->claimed.job.kind;
  Count(shared_->counters.unknown_kind);
  bool warn = false;
  {
    std::lock_guard lock(mutex_);
    const SteadyTime now = Clock::now();
    auto [entry, first] = warned_kinds_.try_emplace(kind, now);
    warn = first || now - entry->second > kWarnAgain;
    if (warn) entry->second = now;
  }
  if (warn) {
    const std::string message =
        "no handler for kind \"" + kind + "\" (job " + run->claimed.job.id + "): snoozed for " +
        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(options_.unknown_kind_snooze).count()) +
        " s; register one, or give these jobs a queue of their own";
    shared_->Log(LogLevel::kWarning, message);
    shared_->Report("unknown kind", absl::UnimplementedError(message));
  }
  Finish(run, Snooze{options_.unknown_kind_snooze});
}

void PoolRun::Finish(const RunPtr& run, Outcome outcome) {
  // Outside mutex_: a shared limiter tells its other pools.
  run->permit.Release();
  {
    std::lock_guard lock(mutex_);
    --running_;
    auto_prefetch_.Ran(Clock::now() - run->began);
    shared_->counters.running.store(running_, std::memory_order_relaxed);
    if (run->phase == RunPhase::kAbandoned) return;
    run->phase = RunPhase::kSettling;
    ++unsettled_;
    shared_->counters.unsettled.store(unsettled_, std::memory_order_relaxed);
    if (stopping_) state_changed_.notify_all();
  }
  if (std::holds_alternative<SettledElsewhere>(outcome)) {
    const LeaseState state = run->lease->state();
    if (state != LeaseState::kLost && state != LeaseState::kCancelled) Count(shared_->counters.settled_elsewhere);
    return Drop(run);
  }
  // The daemon has said that the token is stale. After a cancellation the settle is sent all the same: its refusal
  // tells the daemon that the handler has stopped.
  if (run->lease->state() == LeaseState::kLost) return Drop(run);
  Settle(run, outcome);
}

void PoolRun::Settle(const RunPtr& run, Outcome& outcome) {
  // A handler that fails because we asked it to stop has not failed: a deploy spends no attempt.
  const bool interrupted = run->stopped_by_shutdown.load(std::memory_order_acquire);
  if (std::holds_alternative<Cancelled>(outcome) || (interrupted && std::holds_alternative<Fail>(outcome))) {
    const bool asked = run->lease->stop_token().stop_requested();
    return Release({run}, asked ? Duration::zero() : kGiveBackDelay);
  }
  if (auto* complete = std::get_if<Complete>(&outcome)) {
    v1::CompleteItem item;
    const absl::Status status =
        ToProto(CompleteItem{run->claimed.lease_token, std::move(complete->result), run->TakeFollowUps()}, &item);
    if (!status.ok()) {
      return SettleFail(run, "the handler's result cannot be sent: " + std::string(status.message()), "INVALID_RESULT",
                        {}, false, std::nullopt);
    }
    return settler_->Complete(run, std::move(item));
  }
  if (auto* fail = std::get_if<Fail>(&outcome)) {
    return SettleFail(run, std::move(fail->message), std::move(fail->type), std::move(fail->detail), false,
                      std::nullopt);
  }
  if (auto* retry = std::get_if<RetryAfter>(&outcome)) {
    FailItem fail{run->claimed.lease_token, {}, false, std::max(retry->delay, Duration::zero())};
    fail.error.message = std::move(retry->message);
    fail.pause_key_for = retry->pause_key_for;
    fail.pause_key = std::move(retry->pause_key);
    return SendFail(run, fail);
  }
  if (auto* discard = std::get_if<Discard>(&outcome)) {
    return SettleFail(run, std::move(discard->reason), {}, {}, true, std::nullopt);
  }
  const auto& snooze = std::get<Snooze>(outcome);
  v1::SnoozeItem item;
  item.set_lease_token(run->claimed.lease_token);
  ToProto(std::max<Duration>(snooze.delay, std::chrono::milliseconds(1)), item.mutable_delay());
  settler_->Snooze(run, std::move(item));
}

void PoolRun::SettleFail(const RunPtr& run, std::string message, std::string type, std::string detail,
                         bool non_retryable, std::optional<Duration> retry_after) {
  FailItem fail{run->claimed.lease_token, {}, non_retryable, retry_after};
  fail.error.message = std::move(message);
  fail.error.type = std::move(type);
  fail.error.detail = std::move(detail);
  SendFail(run, fail);
}

void PoolRun::SendFail(const RunPtr& run, const FailItem& fail) {
  v1::FailItem item;
  const absl::Status status = ToProto(fail, &item);
  // Only the token (the daemon's own) or the name of a key could be at fault.
  if (!status.ok()) shared_->Report("settle", status);
  settler_->Fail(run, std::move(item));
}

void PoolRun::Release(const std::vector<RunPtr>& runs, Duration delay) {
  std::vector<std::pair<RunPtr, v1::ReleaseItem>> items;
  items.reserve(runs.size());
  for (const RunPtr& run : runs) {
    v1::ReleaseItem item;
    item.set_lease_token(run->claimed.lease_token);
    if (delay > Duration::zero()) ToProto(delay, item.mutable_delay());
    items.emplace_back(run, std::move(item));
  }
  settler_->Release(std::move(items));
}

void PoolRun::Drop(const RunPtr& run) {
  keeper_->Forget(run->lease);
  std::lock_guard lock(mutex_);
  run->phase = RunPhase::kDone;
  held_.erase(run->lease.get());
  --unsettled_;
  ++settles_;
  dry_ = false;
  shared_->counters.unsettled.store(unsettled_, std::memory_order_relaxed);
  NoteProgress();
}

void PoolRun::OnSettled(std::vector<SettleAnswer> answers) {
  const Visit visit(*this);
  if (!visit) return;
  PoolCounters& counters = shared_->counters;
  struct Loss {
    RunPtr run;
    LeaseState state;
    absl::Status why;
  };
  std::vector<Loss> losses;
  std::vector<RunPtr> unsendable;
  for (SettleAnswer& answer : answers) {
    const JobRun& run = *answer.run;
    if (answer.status.ok()) {
      switch (answer.verb) {
        case Verb::kComplete:
          Count(counters.completed);
          break;
        case Verb::kFail:
          Count(answer.result.state == JobState::kDiscarded ? counters.discarded : counters.failed);
          break;
        case Verb::kRelease:
          Count(counters.released);
          break;
        case Verb::kSnooze:
          Count(counters.snoozed);
          break;
      }
    } else {
      Count(counters.refused_settles);
      const std::string found = ErrorReason(answer.status);
      if (found == reason::kLeaseLost || found == reason::kJobNotFound) {
        losses.push_back({answer.run, LeaseState::kLost, answer.status});
      } else if (found == reason::kJobCancelled) {
        losses.push_back({answer.run, LeaseState::kCancelled, answer.status});
      } else if (!IsFinalAnswer(answer.status)) {
        shared_->Report("settle", answer.status);
        // The daemon does not take this result or these follow-ups, ever: say so in the job, or it would wait for its
        // lease.
        if (answer.verb == Verb::kComplete) unsendable.push_back(answer.run);
      }
    }
    if (options_.hooks.settled) {
      shared_->Guard([&] {
        options_.hooks.settled({run.claimed.job, ToString(answer.verb), answer.status, answer.result});
      });
    }
    if (unsendable.empty() || unsendable.back() != answer.run) {
      keeper_->Forget(answer.run->lease);
    } else {
      const std::string message = "the daemon refused the result: " + std::string(answer.status.message());
      SettleFail(answer.run, message, ErrorReason(answer.status), {}, false, std::nullopt);
      answer.run = nullptr;
    }
  }
  {
    std::lock_guard lock(mutex_);
    for (const SettleAnswer& answer : answers) {
      if (!answer.run) continue;
      if (answer.run->phase != RunPhase::kAbandoned) {
        answer.run->phase = RunPhase::kDone;
        --unsettled_;
      }
      held_.erase(answer.run->lease.get());
    }
    ++settles_;
    dry_ = false;
    counters.unsettled.store(unsettled_, std::memory_order_relaxed);
    std::erase_if(losses, [](const Loss& loss) { return std::exchange(loss.run->loss_announced, true); });
    NoteProgress();
  }
  for (const Loss& loss : losses) AnnounceLoss(*loss.run, loss.state, loss.why);
  MaybeClaim();
}

}  // namespace tenure::client::internal
