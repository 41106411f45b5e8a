// The threads on which the store's blocking calls run. Layer: engine. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tenure::engine {

class Executor {
 public:
  explicit Executor(int threads);
  ~Executor();  // Stop().

  // Runs `task` on one of the threads, first come first served. After Stop it is dropped.
  void Post(std::function<void()> task);
  // Runs what is waiting, then joins the threads. Call once no one posts any more.
  void Stop();

 private:
  void Loop();

  std::mutex mu_;
  std::condition_variable cv_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tenure::engine
