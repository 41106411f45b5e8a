// Coalescing: what concurrent calls ask of one queue, gathered into one statement. Layer: engine. Thread-safe.
//
// Per queue one batch is under way at a time, and while it is the next one gathers; an idle lane starts at once, so
// that no wait is added. Calls are served in the order in which they came; between queues the executor's order is the
// fairness: a queue with more to do goes to the end of the line after each batch. A batch of several calls that ran
// into the statement's deadline, or that the database refused (one call's data may be at fault), is run again in
// halves, so that no call suffers from another; the lane grows back as batches succeed.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/engine/executor.h"

namespace tenure::engine {

struct LaneLimits {
  size_t batch_items = 1000;
  int64_t batch_bytes = 4 << 20;
  size_t waiting_items = 200'000;  // In all queues; beyond it a call is shed.
};

template <typename Item, typename Outcome>
class BatchLane {
 public:
  using Outcomes = absl::StatusOr<std::vector<Outcome>>;
  // Runs one batch on an executor thread; one outcome for each item, in order.
  using Flush = std::function<Outcomes(int32_t queue, std::span<const Item> items)>;

  BatchLane(std::string verb, Executor& executor, Metrics& metrics, LaneLimits limits, Flush flush)
      : verb_(std::move(verb)), executor_(executor), metrics_(metrics), limits_(limits), flush_(std::move(flush)) {}

  // `done` gets the outcomes of these items. Items beyond the batch size are split over several batches by the caller.
  void Add(int32_t queue, std::vector<Item> items, int64_t bytes, std::function<void(Outcomes)> done) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (waiting_items_ + items.size() <= limits_.waiting_items) {
        waiting_items_ += items.size();
        Line& line = lines_[queue];
        line.groups.push_back({std::move(items), bytes, std::move(done)});
        if (line.running) return;
        line.running = true;
        done = nullptr;
      }
    }
    if (done) {
      // The values that docs/metrics.md names, which are 0 from the start.
      Metrics::Add(metrics_.shed, {{"what", verb_.starts_with("enqueue") ? "enqueue" : "settle"}});
      done(MakeError(absl::StatusCode::kResourceExhausted, "OVERLOADED",
                     "the daemon has as much waiting as it takes; try again a little later", {},
                     absl::Milliseconds(200)));
      return;
    }
    executor_.Post([this, queue] { Run(queue); });
  }

  size_t batch_items() const { return limits_.batch_items; }
  // Drops what waits, once the executor has stopped: the callbacks are destroyed, not run.
  void Abandon() {
    std::unordered_map<int32_t, Line> dropped;
    std::lock_guard<std::mutex> lock(mu_);
    dropped.swap(lines_);
  }

 private:
  struct Group {
    std::vector<Item> items;
    int64_t bytes = 0;
    std::function<void(Outcomes)> done;
  };
  struct Line {
    std::deque<Group> groups;
    bool running = false;
    size_t limit = 0;  // Items a batch after a failure; 0: as configured.
  };

  void Run(int32_t queue) {
    std::vector<Group> batch;
    size_t count = 0;
    {
      std::lock_guard<std::mutex> lock(mu_);
      Line& line = lines_[queue];
      const size_t limit = line.limit > 0 ? line.limit : limits_.batch_items;
      int64_t bytes = 0;
      while (!line.groups.empty()) {
        Group& next = line.groups.front();
        if (!batch.empty() && (count + next.items.size() > limit || bytes + next.bytes > limits_.batch_bytes)) break;
        count += next.items.size();
        bytes += next.bytes;
        batch.push_back(std::move(next));
        line.groups.pop_front();
      }
      waiting_items_ -= count;
    }
    std::vector<Item> items;
    if (batch.size() == 1) {
      items = std::move(batch.front().items);
    } else {
      items.reserve(count);
      for (Group& group : batch) std::move(group.items.begin(), group.items.end(), std::back_inserter(items));
    }
    std::vector<size_t> sizes;
    if (batch.size() == 1) {
      sizes.push_back(items.size());
    } else {
      for (const Group& group : batch) sizes.push_back(group.items.size());
    }
    metrics_.batch_items.Observe({{"verb", verb_}}, static_cast<double>(count));
    Outcomes outcomes = flush_(queue, items);

    // Both mean that nothing was written.
    const bool divisible =
        !outcomes.ok() && (absl::IsDeadlineExceeded(outcomes.status()) || absl::IsInternal(outcomes.status()));
    if (divisible && batch.size() > 1) {
      // Again, in smaller batches.
      size_t at = 0;
      for (size_t i = 0; i < batch.size(); ++i) {
        batch[i].items.assign(std::make_move_iterator(items.begin() + static_cast<std::ptrdiff_t>(at)),
                              std::make_move_iterator(items.begin() + static_cast<std::ptrdiff_t>(at + sizes[i])));
        at += sizes[i];
      }
      {
        std::lock_guard<std::mutex> lock(mu_);
        Line& line = lines_[queue];
        line.limit = std::max<size_t>(1, count / 2);
        waiting_items_ += count;
        for (auto group = batch.rbegin(); group != batch.rend(); ++group) line.groups.push_front(std::move(*group));
      }
      executor_.Post([this, queue] { Run(queue); });
      return;
    }
    // The next batch is on its way while this one's callers are answered.
    if (GoOn(queue, !divisible)) executor_.Post([this, queue] { Run(queue); });
    size_t at = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (!outcomes.ok()) {
        batch[i].done(outcomes.status());
      } else if (batch.size() == 1) {
        batch[i].done(std::move(outcomes));
      } else {
        batch[i].done(std::vector<Outcome>(
            std::make_move_iterator(outcomes->begin() + static_cast<std::ptrdiff_t>(at)),
            std::make_move_iterator(outcomes->begin() + static_cast<std::ptrdiff_t>(at + sizes[i]))));
      }
      at += sizes[i];
    }
  }

  // After a batch: true if another waits. Else the line is at rest.
  bool GoOn(int32_t queue, bool grow) {
    std::lock_guard<std::mutex> lock(mu_);
    auto line = lines_.find(queue);
    if (grow && line->second.limit > 0) {
      line->second.limit *= 2;
      if (line->second.limit >= limits_.batch_items) line->second.limit = 0;
    }
    if (!line->second.groups.empty()) return true;
    line->second.running = false;
    if (line->second.limit == 0) lines_.erase(line);  // Thousands of quiet queues cost nothing.
    return false;
  }

  const std::string verb_;
  Executor& executor_;
  Metrics& metrics_;
  const LaneLimits limits_;
  const Flush flush_;
  mutable std::mutex mu_;
  std::unordered_map<int32_t, Line> lines_;
  size_t waiting_items_ = 0;
};

}  // namespace tenure::engine
