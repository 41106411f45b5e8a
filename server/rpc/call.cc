#include "server/rpc/call.h"

#include <algorithm>

#include "server/base/logging.h"

namespace tenure::rpc {
namespace {

// Bounds what a caller's deadline can do to the arithmetic; longer than any poll.
constexpr absl::Duration kLongestTimeout = absl::Hours(1);
constexpr absl::Duration kPollMargin = absl::Milliseconds(50);
// gRPC clients round their timeouts up on the wire to two or three digits (10.01 s travels as 10.1 s): what arrives may
// be later than what the caller meant by up to a hundredth.
constexpr int kRounding = 100;

Clock::TimePoint Later(Clock::TimePoint from, absl::Duration by) {
  return from + absl::ToChronoNanoseconds(std::clamp(by, absl::ZeroDuration(), kLongestTimeout));
}

}  // namespace

CallBase::CallBase(Clock& clock, std::optional<absl::Duration> timeout, std::string peer)
    : clock_(clock),
      peer_(std::move(peer)),
      started_(clock.Now()),
      has_deadline_(timeout.has_value()),
      deadline_(Later(started_, timeout.value_or(kDefaultTimeout))) {}

absl::Duration CallBase::PollWait(absl::Duration wait) {
  if (!has_deadline_) {
    deadline_ = Later(started_, wait + kDefaultTimeout);
    return wait;
  }
  const absl::Duration remaining = absl::FromChrono(deadline_ - clock_.Now());
  const absl::Duration usable = remaining - std::min(kPollMargin + remaining / kRounding, remaining / 10);
  return std::clamp(wait, absl::ZeroDuration(), std::max(usable, absl::ZeroDuration()));
}

bool CallBase::cancelled() const {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

void CallBase::OnCancel(std::function<void()> hook) {
  {
    std::lock_guard lock(mutex_);
    // The hook holds the poll, the poll holds the callback, the callback holds this call: keeping it past the end would
    // be a cycle.
    if (done_) return;
    if (!cancelled_) {
      on_cancel_ = std::move(hook);
      return;
    }
  }
  hook();
}

void CallBase::OnUndelivered(std::function<void()> hook) {
  std::lock_guard lock(mutex_);
  on_undelivered_ = std::move(hook);
}

void CallBase::Finish(absl::Status status) {
  std::function<void()> dropped;
  {
    std::lock_guard lock(mutex_);
    if (done_) {
      LogError("call finished twice", {{"status", status.ToString()}});
      return;
    }
    done_ = true;
    dropped.swap(on_cancel_);
  }
  // The transport may drop its reference in here; the handler that called holds its own until it returns.
  if (finished_) {
    Finished finished;
    finished.swap(finished_);
    finished(*this, status);
  }
  if (auto hook = TakeUndelivered()) hook();
}

void CallBase::Cancel() {
  std::function<void()> hook;
  {
    std::lock_guard lock(mutex_);
    if (cancelled_ || closed_) return;
    cancelled_ = true;
    hook.swap(on_cancel_);
  }
  if (hook) hook();
}

void CallBase::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  if (auto hook = TakeUndelivered()) hook();
}

std::function<void()> CallBase::TakeUndelivered() {
  std::function<void()> hook;
  std::lock_guard lock(mutex_);
  if (!done_ || !closed_) return hook;
  hook.swap(on_undelivered_);
  if (!cancelled_) hook = nullptr;
  return hook;
}

}  // namespace tenure::rpc
