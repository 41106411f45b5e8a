// See timer.h.
#include "timer.h"

#include <utility>

namespace tenure::client::internal {

Timer::Timer() : thread_([this] { Loop(); }) {}

Timer::~Timer() { Stop(); }

void Timer::At(SteadyTime when, std::function<void()> task) {
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  const auto placed = tasks_.emplace(when, std::move(task));
  if (placed == tasks_.begin()) wake_.notify_one();
}

void Timer::After(Duration delay, std::function<void()> task) {
  At(std::chrono::steady_clock::now() + delay, std::move(task));
}

void Timer::Stop() {
  std::multimap<SteadyTime, std::function<void()>> dropped;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(tasks_);
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Timer::Loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (tasks_.empty()) {
      wake_.wait(lock);
      continue;
    }
    const SteadyTime next = tasks_.begin()->first;
    if (next > std::chrono::steady_clock::now()) {
      wake_.wait_until(lock, next);
      continue;
    }
    std::function<void()> task = std::move(tasks_.begin()->second);
    tasks_.erase(tasks_.begin());
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace tenure::client::internal
