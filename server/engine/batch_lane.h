// Coalescing: what concurrent calls ask of one queue, gathered into one statement. Layer: engine. Thread-safe.
//
// While one batch of a queue is under way the next one gathers; an idle lane starts at once, so that no wait is added.
// A lane may send a second one beside it once enough waits, so that the database works on one while the daemon
// reads the answer of the other. Calls are served in the order in which they came; between queues the executor's order
// is the fairness: a queue with more to do goes to the end of the line after each batch. A batch of several calls that
// ran into the statement's deadline, or that the database refused (one call's data may be at fault), is run again in
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
  int in_flight = 1;               // Batches of a queue at once.
  // All but the first begin with so many items at least: what a statement and a commit cost is little for each of them.
  size_t beside_items = 250;
};

template <typename Item, typename Outcome>
class BatchLane {
 public:
  using Outcomes = absl::StatusOr<std::vector<Outcome>>;
  // Runs one batch on an executor thread; one outcome for each item, in order.
  using Flush = std::function<Outcomes(int32_t queue, std::span<const Item> items)>;

  BatchLane(std::string verb, Executor& executor, Metrics& metrics, LaneLimits limits, Flush flush)
      : verb_(std::move(verb)), executor_(executor), metrics_(metrics), limits_(limits), flush_(std::move(flush)) {}

  // `done` gets the outcomes of these items. Items beyond the batch size are split over several batches by the caller;
  // `follows`: what was added just before is of the same call, and is written before these.
  void Add(int32_t queue, std::vector<Item> items, int64_t bytes, std::function<void(Outcomes)> done,
           bool follows = false) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (waiting_items_ + items.size() <= limits_.waiting_items) {
        Line& line = lines_[queue];
        waiting_items_ += items.size();
        line.waiting += items.size();
        line.groups.push_back({std::move(items), bytes, std::move(done), follows});
        if (!MayStart(line)) return;
        ++line.in_flight;
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
    bool follows = false;
  };
  struct Line {
    std::deque<Group> groups;
    size_t waiting = 0;  // Items in groups.
    int in_flight = 0;
    size_t limit = 0;  // Items a batch after a failure; 0: as configured.
  };

  // Requires mu_. Whether a batch of the line may be sent now.
  bool MayStart(const Line& line) const {
    if (line.groups.empty()) return false;
    if (line.in_flight == 0) return true;
    return line.in_flight < limits_.in_flight && line.limit == 0 && line.waiting >= limits_.beside_items &&
           !line.groups.front().follows;
  }

  // Requires mu_. The next batch, in the order of the calls.
  std::vector<Group> TakeBatch(Line& line, size_t* count) {
    std::vector<Group> batch;
    const size_t limit = line.limit > 0 ? line.limit : limits_.batch_items;
    int64_t bytes = 0;
    while (!line.groups.empty()) {
      Group& next = line.groups.front();
      if (!batch.empty() && (*count + next.items.size() > limit || bytes + next.bytes > limits_.batch_bytes)) break;
      // The batch that is under way has what this one follows.
      if (batch.empty() && next.follows && line.in_flight > 1) break;
      *count += next.items.size();
      bytes += next.bytes;
      batch.push_back(std::move(next));
      line.groups.pop_front();
    }
    line.waiting -= *count;
    waiting_items_ -= *count;
    return batch;
  }

  void Run(int32_t queue) {
    std::vector<Group> batch;
    size_t count = 0;
    {
      std::lock_guard<std::mutex> lock(mu_);
      Line& line = lines_[queue];
      batch = TakeBatch(line, &count);
      if (batch.empty()) {
        // Another batch took what this one was started for; whichever ends last goes on.
        if (--line.in_flight == 0 && line.limit == 0) lines_.erase(queue);
        return;
      }
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
        line.waiting += count;
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

  // After a batch: true if another is to be sent. Else the line is at rest, or has others under way.
  bool GoOn(int32_t queue, bool grow) {
    std::lock_guard<std::mutex> lock(mu_);
    auto found = lines_.find(queue);
    Line& line = found->second;
    if (grow && line.limit > 0) {
      line.limit *= 2;
      if (line.limit >= limits_.batch_items) line.limit = 0;
    }
    --line.in_flight;
    if (MayStart(line)) {
      ++line.in_flight;
      return true;
    }
    // Thousands of quiet queues cost nothing.
    if (line.groups.empty() && line.in_flight == 0 && line.limit == 0) lines_.erase(found);
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
