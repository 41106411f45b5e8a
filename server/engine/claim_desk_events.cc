// ClaimDesk: what it is told. Jobs became ready, a queue changed, the replica begins or drains; and the second look at
// rows that a claim could not get.
#include <algorithm>
#include <utility>

#include "server/engine/claim_desk_state.h"

namespace tenure::engine {

void ClaimDesk::NoteReady(const std::vector<store::ReadyRange>& ranges) {
  Actions actions;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (const store::ReadyRange& range : ranges) {
      Queue& queue = QueueOf(range.queue);
      queue.cursors[range.priority].Add(range.low, range.high);
      WakeParked(queue, std::max(1, range.count), actions);
      Pump(queue, actions);
    }
  }
  Run(actions);
}

void ClaimDesk::NoteQueue(const store::Queue& row) {
  Actions actions;
  {
    std::lock_guard<std::mutex> lock(mu_);
    Queue& queue = QueueOf(row.id);
    bool wake = queue.paused && !row.paused;
    queue.paused = row.paused;
    queue.fair = row.settings.fair_tenants;
    queue.ageing = absl::ToChronoNanoseconds(row.settings.priority_ageing.value_or(absl::ZeroDuration()));
    if (auto waiting = unknown_.find(row.name); waiting != unknown_.end()) {
      std::list<PollPtr> polls = std::move(waiting->second);
      unknown_.erase(waiting);
      wake = true;  // Its first job may have been told of before these polls were known to want it.
      for (const PollPtr& poll : polls) {
        poll->unknown.erase(row.name);
        poll->queues.push_back(row.id);
        if (poll->is_parked) poll->parked.emplace_back(&queue, queue.parked.insert(queue.parked.end(), poll));
      }
    }
    if (wake) {
      WakeParked(queue, 1, actions);
      Pump(queue, actions);
    }
  }
  Run(actions);
}

void ClaimDesk::NoteAges(const std::vector<store::ReadyRange>& positions,
                         const std::vector<std::optional<absl::Duration>>& ages) {
  const Clock::TimePoint now = timers_.clock().Now();
  std::lock_guard<std::mutex> lock(mu_);
  for (auto& [unused, queue] : queues_) queue->waiting_since.clear();
  for (size_t i = 0; i < positions.size(); ++i) {
    Queue& queue = QueueOf(positions[i].queue);
    if (queue.ageing.count() == 0 || !ages[i]) continue;
    queue.waiting_since[positions[i].priority] = now - absl::ToChronoNanoseconds(*ages[i]);
  }
}

void ClaimDesk::Reset(const std::vector<std::pair<int32_t, int16_t>>& ready) {
  Actions actions;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (auto& [unused, queue] : queues_) {
      for (auto& [priority, cursor] : queue->cursors) cursor.Add(store::kLowestKey, store::kHighestKey);
    }
    for (const auto& [id, priority] : ready) QueueOf(id).cursors[priority].Add(store::kLowestKey, store::kHighestKey);
    for (auto& [unused, queue] : queues_) {
      WakeParked(*queue, 1, actions);
      Pump(*queue, actions);
    }
  }
  Run(actions);
}

void ClaimDesk::ScheduleRevisit(Queue& queue) {
  if (queue.revisit_timer) return;
  queue.revisit_timer = true;
  timers_.At(queue.revisit_at, [this, id = queue.id] {
    Actions actions;
    {
      std::lock_guard<std::mutex> lock(mu_);
      Queue& due = QueueOf(id);
      due.revisit_timer = false;
      if (!due.revisit.empty()) {
        if (due.revisit_at > timers_.clock().Now()) {
          ScheduleRevisit(due);
        } else {
          WakeParked(due, 1, actions);
          Pump(due, actions);
        }
      }
    }
    Run(actions);
  });
}

void ClaimDesk::Drain() {
  Actions actions;
  {
    std::lock_guard<std::mutex> lock(mu_);
    draining_ = true;
    const std::vector<PollPtr> polls(polls_.begin(), polls_.end());
    for (const PollPtr& poll : polls) {
      if (poll->in_flight) {
        poll->ends = timers_.clock().Now();
      } else {
        Answer(poll, ClaimAnswer{}, actions);
      }
    }
  }
  Run(actions);
}

std::vector<store::ReadyRange> ClaimDesk::Positions() const {
  std::vector<store::ReadyRange> positions;
  std::lock_guard<std::mutex> lock(mu_);
  for (const auto& [id, queue] : queues_) {
    for (const auto& [priority, cursor] : queue->cursors) {
      if (cursor.MaybeReady()) positions.push_back({id, priority, cursor.Lowest(), store::kHighestKey, 0});
    }
  }
  return positions;
}

size_t ClaimDesk::parked() const {
  std::lock_guard<std::mutex> lock(mu_);
  return polls_.size();
}

}  // namespace tenure::engine
