// DeadlineWatch and LeaderLease: see the header. Layer: background.
#include "server/background/leader_lease.h"

#include <algorithm>
#include <exception>

#include "absl/strings/str_cat.h"
#include "server/background/worker.h"
#include "server/base/logging.h"

namespace tenure::background {

DeadlineWatch::DeadlineWatch(Clock& clock)
    : clock_(clock), wake_(clock), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

int DeadlineWatch::Add(Clock::TimePoint deadline, std::function<void()> expired) {
  int id;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    id = next_id_++;
    items_[id] = Item{deadline, std::move(expired)};
  }
  wake_.Notify();
  return id;
}

bool DeadlineWatch::Move(int id, Clock::TimePoint deadline) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Item& item = items_.at(id);
  if (!item.expired || clock_.Now() >= item.deadline) return false;
  // Deadlines only move away, so the watch may wake at the old one and look again.
  item.deadline = std::max(item.deadline, deadline);
  return true;
}

void DeadlineWatch::Remove(int id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  items_.erase(id);
}

void DeadlineWatch::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    Clock::TimePoint next = Clock::TimePoint::max();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const Clock::TimePoint now = clock_.Now();
      for (auto& [id, item] : items_) {
        if (!item.expired) continue;
        if (now >= item.deadline) {
          // With the mutex held, so that Remove waits for it.
          std::exchange(item.expired, nullptr)();
        } else {
          next = std::min(next, item.deadline);
        }
      }
    }
    wake_.WaitUntil(next, stop);
  }
}

LeaderLease::LeaderLease(store::Store& store, Clock& clock, DeadlineWatch& watch, store::Fence fence,
                         absl::Duration lease, Clock::TimePoint sent, std::function<void()> renewed)
    : store_(store),
      clock_(clock),
      watch_(watch),
      fence_(std::move(fence)),
      lease_(lease),
      sent_(sent),
      renewed_(std::move(renewed)),
      wake_(clock) {
  watched_ = watch_.Add(sent_ + absl::ToChronoNanoseconds(lease_), [this] {
    LogWarn("leader lease ran out", {{"worker", fence_.worker}, {"term", absl::StrCat(fence_.term)}});
    lost_.request_stop();
  });
  thread_ = std::jthread([this](const std::stop_token& stop) { Renew(stop); });
}

LeaderLease::~LeaderLease() {
  thread_.request_stop();
  thread_.join();
  watch_.Remove(watched_);
}

void LeaderLease::Renew(const std::stop_token& stop) {
  const auto third = absl::ToChronoNanoseconds(lease_ / 3);
  const auto retry = absl::ToChronoNanoseconds(lease_ / 15);  // After an error: there is time for several tries.
  Clock::TimePoint next = sent_ + third;
  bool failing = false;
  while (wake_.WaitUntil(next, stop) != WakeUp::Reason::kStopped && !lost()) {
    const Clock::TimePoint sent = clock_.Now();
    absl::Status status;
    try {
      status = store_.RenewLeader(fence_, lease_);
      if (status.ok() && watch_.Move(watched_, sent + absl::ToChronoNanoseconds(lease_))) renewed_();
    } catch (...) {
      // Not the worker's: it must not end the process, and the next try may do better.
      status = absl::InternalError(DescribeCurrentException());
    }
    if (status.ok()) {
      failing = false;
      next = sent + third;
    } else if (IsTermOver(status)) {
      LogWarn("leader lease lost", {{"worker", fence_.worker}, {"term", absl::StrCat(fence_.term)}});
      lost_.request_stop();
      return;
    } else {
      // Once: there is a try several times a second.
      if (!failing)
        LogWarn("leader lease not renewed", {{"worker", fence_.worker}, {"error", std::string(status.message())}});
      failing = true;
      next = clock_.Now() + retry;
    }
  }
}

}  // namespace tenure::background
