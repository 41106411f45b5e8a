#include "server/engine/queue_directory.h"

#include <algorithm>
#include <utility>

#include "server/base/status.h"

namespace tenure::engine {

void QueueDirectory::Resolve(std::vector<std::string> names, bool create, std::function<void(Resolved)> done) {
  Resolved resolved;
  std::vector<std::string> unknown;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (std::string& name : names) {
      auto id = ids_.find(name);
      if (id != ids_.end()) {
        resolved.insert_or_assign(std::move(name), queues_.at(id->second));
      } else {
        unknown.push_back(std::move(name));
      }
    }
  }
  if (unknown.empty()) return done(std::move(resolved));
  executor_.Post(
      [this, create, unknown = std::move(unknown), resolved = std::move(resolved), done = std::move(done)]() mutable {
        for (std::string& name : unknown) {
          absl::StatusOr<store::Queue> queue = store_.EnsureQueue(name, create);
          if (queue.ok()) LearnIfNew(*queue);
          resolved.insert_or_assign(std::move(name), std::move(queue));
        }
        done(std::move(resolved));
      });
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
