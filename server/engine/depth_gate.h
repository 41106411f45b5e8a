// How many more jobs a queue with a depth bound takes. Layer: engine. Thread-safe.
//
// The depth that events tell lags: a job counts in it once its transaction has been read. So the gate adds what this
// replica has let through and not answered yet, and what it answered after the latest reading of events began. What
// other replicas let through meanwhile is not known: the bound is exceeded by that at most.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace tenure::engine {

class DepthGate {
 public:
  // Lets through as many of `jobs` as there is room for, and answers that number. `depth`: what events have told.
  int64_t Admit(int32_t queue, int64_t depth, int64_t bound, int64_t jobs) {
    const std::lock_guard<std::mutex> lock(mu_);
    const auto found = queues_.find(queue);
    const int64_t unseen = found == queues_.end() ? 0 : found->second.open + found->second.older + found->second.newer;
    const int64_t admitted = std::clamp<int64_t>(bound - depth - unseen, 0, jobs);
    if (admitted > 0) queues_[queue].open += admitted;
    return admitted;
  }
  // Of `admitted` jobs, `accepted` have been written.
  void Answered(int32_t queue, int64_t admitted, int64_t accepted) {
    const std::lock_guard<std::mutex> lock(mu_);
    Unseen& unseen = queues_[queue];
    unseen.open -= admitted;
    unseen.newer += accepted;
  }
  // A reading of events begins: it will see whatever has been answered before.
  void ReadingBegins() {
    const std::lock_guard<std::mutex> lock(mu_);
    for (auto& [unused, unseen] : queues_) {
      unseen.older += unseen.newer;
      unseen.newer = 0;
    }
  }
  // What it told is in the depths now.
  void ReadingEnded() {
    const std::lock_guard<std::mutex> lock(mu_);
    for (auto& [unused, unseen] : queues_) unseen.older = 0;
    std::erase_if(queues_, [](const auto& entry) { return entry.second.open == 0 && entry.second.newer == 0; });
  }

 private:
  struct Unseen {
    int64_t open = 0;   // Let through, not answered.
    int64_t older = 0;  // Answered before the reading under way began, ...
    int64_t newer = 0;  // ... and after.
  };
  std::mutex mu_;
  std::unordered_map<int32_t, Unseen> queues_;
};

}  // namespace tenure::engine
