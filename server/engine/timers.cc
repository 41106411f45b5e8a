#include "server/engine/timers.h"

#include <utility>

namespace tenure::engine {

Timers::Timers(Clock& clock) : clock_(clock), thread_([this] { Loop(); }) {}

Timers::~Timers() { Stop(); }

Timers::Id Timers::At(Clock::TimePoint when, std::function<void()> run) {
  Id id = 0;
  bool first = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (stopping_) return 0;
    id = next_id_++;
    auto entry = entries_.emplace(when, std::make_pair(id, std::move(run)));
    by_id_[id] = entry;
    first = entry == entries_.begin();
  }
  if (first) cv_.notify_one();
  return id;
}

void Timers::Cancel(Id id) {
  std::function<void()> dropped;  // Destroyed outside the lock: it may own much.
  std::lock_guard<std::mutex> lock(mu_);
  auto entry = by_id_.find(id);
  if (entry == by_id_.end()) return;
  dropped = std::move(entry->second->second.second);
  entries_.erase(entry->second);
  by_id_.erase(entry);
}

void Timers::Stop() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
  }
  cv_.notify_all();
  if (thread_.joinable()) thread_.join();
  // What the functions own is told that they will not run.
  Entries dropped;
  {
    std::lock_guard<std::mutex> lock(mu_);
    dropped.swap(entries_);
    by_id_.clear();
  }
}

void Timers::Loop() {
  std::unique_lock<std::mutex> lock(mu_);
  while (!stopping_) {
    if (entries_.empty()) {
      clock_.WaitUntil(lock, cv_, Clock::TimePoint::max());
      continue;
    }
    auto first = entries_.begin();
    if (first->first > clock_.Now()) {
      const Clock::TimePoint when = first->first;
      clock_.WaitUntil(lock, cv_, when);
      continue;
    }
    std::function<void()> run = std::move(first->second.second);
    by_id_.erase(first->second.first);
    entries_.erase(first);
    lock.unlock();
    run();
    run = nullptr;
    lock.lock();
  }
}

}  // namespace tenure::engine
