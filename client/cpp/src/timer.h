// Timer: runs small tasks later, on one thread of its own. Layer: client. Thread-safe. Tasks must not block.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "tenure/types.h"

namespace tenure::client::internal {

class Timer {
 public:
  Timer();
  // Drops what has not run, waits for the task that runs. Not to be called from a task.
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Runs `task` once at `when`, or soon if that has passed. After Stop it is dropped.
  void At(SteadyTime when, std::function<void()> task);
  void After(Duration delay, std::function<void()> task);
  // Drops what has not run and waits for the task that runs. Idempotent.
  void Stop();

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::multimap<SteadyTime, std::function<void()>> tasks_;  // Guarded by mutex_.
  bool stopping_ = false;                                   // Guarded by mutex_.
  std::thread thread_;
};

}  // namespace tenure::client::internal
