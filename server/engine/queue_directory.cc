#include "server/engine/queue_directory.h"

#include <algorithm>
#include <utility>

#include "server/base/status.h"

namespace tenure::engine {

void QueueDirectory::Resolve(std::vector<std::string> names, bool create, std::function<void(Resolved)> done) {
  auto call = std::make_shared<Call>();
  call->done = std::move(done);
  int begin = 0;
  // Under the lock: after it, who looks names up may be through with the call.
  bool all_known = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (std::string& name : names) {
      auto id = ids_.find(name);
      if (id != ids_.end()) {
        call->resolved.insert_or_assign(std::move(name), queues_.at(id->second));
        continue;
      }
      ++call->open;
      Wanted wanted(std::move(name), create);
      LookUp& look_up = look_ups_[wanted];
      if (!look_up.under_way && look_up.calls.empty()) line_.push_back(std::move(wanted));
      (look_up.under_way ? look_up.later : look_up.calls).push_back(call);
    }
    all_known = call->open == 0;
    if (!all_known) begin = std::min(most_look_ups_ - running_, static_cast<int>(line_.size()));
    running_ += begin;
  }
  if (all_known) return call->done(std::move(call->resolved));
  for (int i = 0; i < begin; ++i) executor_.Post([this] { LookUpNext(); });
}

void QueueDirectory::LookUpNext() {
  Wanted name;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (line_.empty()) {
      --running_;
      return;
    }
    name = std::move(line_.front());
    line_.pop_front();
    look_ups_[name].under_way = true;
  }
  const absl::StatusOr<store::Queue> queue = store_.EnsureQueue(name.first, name.second);
  if (queue.ok()) LearnIfNew(*queue);
  std::vector<CallPtr> complete;
  Answer(name, queue, complete);
  executor_.Post([this] { LookUpNext(); });
  for (const CallPtr& call : complete) call->done(std::move(call->resolved));
}

void QueueDirectory::Answer(const Wanted& name, const absl::StatusOr<store::Queue>& queue,
                            std::vector<CallPtr>& complete) {
  std::lock_guard<std::mutex> lock(mu_);
  LookUp& look_up = look_ups_[name];
  std::vector<CallPtr> answered = std::move(look_up.calls);
  // Somebody may have made it between this look and the call of who came later: only a new look can say.
  if (absl::IsNotFound(queue.status()) && !look_up.later.empty()) {
    look_up = {.calls = std::move(look_up.later)};
    line_.push_back(name);
  } else {
    answered.insert(answered.end(), look_up.later.begin(), look_up.later.end());
    look_ups_.erase(name);
  }
  for (CallPtr& call : answered) {
    call->resolved.insert_or_assign(name.first, queue);
    if (--call->open == 0) complete.push_back(std::move(call));
  }
}

std::vector<int32_t> QueueDirectory::IdsOf(std::span<const QueueShare> names) const {
  std::vector<int32_t> ids;
  ids.reserve(names.size());
  std::lock_guard<std::mutex> lock(mu_);
  for (const QueueShare& share : names) {
    const auto id = ids_.find(share.queue);
    ids.push_back(id == ids_.end() ? 0 : id->second);
  }
  return ids;
}

std::optional<store::Queue> QueueDirectory::Find(const std::string& name) const {
  std::lock_guard<std::mutex> lock(mu_);
  auto id = ids_.find(name);
  if (id == ids_.end()) return std::nullopt;
  return queues_.at(id->second);
}

std::optional<store::Queue> QueueDirectory::Find(int32_t id) const {
  std::lock_guard<std::mutex> lock(mu_);
  auto queue = queues_.find(id);
  if (queue == queues_.end()) return std::nullopt;
  return queue->second;
}

std::string QueueDirectory::Name(int32_t id) const {
  std::lock_guard<std::mutex> lock(mu_);
  auto queue = queues_.find(id);
  return queue == queues_.end() ? std::string() : queue->second.name;
}

std::vector<store::Queue> QueueDirectory::All() const {
  std::vector<store::Queue> all;
  std::lock_guard<std::mutex> lock(mu_);
  all.reserve(queues_.size());
  for (const auto& [unused, queue] : queues_) all.push_back(queue);
  return all;
}

void QueueDirectory::Learn(const store::Queue& queue) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    ids_[queue.name] = queue.id;
    queues_[queue.id] = queue;
  }
  if (listener_) listener_(queue);
}

void QueueDirectory::LearnIfNew(const store::Queue& queue) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (queues_.contains(queue.id)) return;
  }
  Learn(queue);
}

absl::Status QueueDirectory::Reload(std::span<const int32_t> ids) {
  if (ids.empty()) return absl::OkStatus();
  TENURE_ASSIGN_OR_RETURN(std::vector<store::Queue> queues, store_.LoadQueues(ids));
  for (const store::Queue& queue : queues) Learn(queue);
  return absl::OkStatus();
}

absl::Status QueueDirectory::EnsureKnown(std::span<const int32_t> ids) {
  std::vector<int32_t> unknown;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (int32_t id : ids) {
      if (!queues_.contains(id)) unknown.push_back(id);
    }
  }
  std::sort(unknown.begin(), unknown.end());
  unknown.erase(std::unique(unknown.begin(), unknown.end()), unknown.end());
  return Reload(unknown);
}

}  // namespace tenure::engine
