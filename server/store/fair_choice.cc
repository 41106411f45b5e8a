#include "server/store/fair_choice.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace tenure::store {

std::vector<FairPick> FairChoice::Run(int64_t allowance) {
  // Who may go next, by priority, virtual start and the order of enqueue.
  std::set<std::tuple<int, int64_t, int64_t, std::string>> turns;
  const auto enter = [&](const std::string& name, FairTenant& tenant) {
    tenant.next_start = std::max(tenant.next_start, queue_.virtual_time);
    turns.emplace(-tenant.line.front().priority, tenant.next_start, tenant.line.front().id, name);
  };
  for (auto& [name, tenant] : tenants_) {
    if (!tenant.line.empty()) enter(name, tenant);
  }
  std::vector<FairPick> picks;
  auto level = queue_.ready.rbegin();
  int64_t ready = 0;  // Of the priority of the next one, and above.
  while (static_cast<int64_t>(picks.size()) < allowance && !turns.empty() && !cut_) {
    const auto& [lowness, start, unused, name_of_next] = *turns.begin();
    for (; level != queue_.ready.rend() && level->first >= -lowness; ++level) ready += level->second;
    const bool waits = ready + static_cast<int64_t>(picks.size()) >= queue_.window && start >= queue_.last_start;
    const std::string name = name_of_next;
    turns.erase(turns.begin());
    if (waits) continue;  // Its other jobs come after this one.
    FairTenant& tenant = tenants_.at(name);
    picks.push_back({tenant.line.front().id, tenant.next_start});
    tenant.line.pop_front();
    tenant.next_start += std::max<int64_t>(1, kFairTurn / tenant.weight);
    next_starts_[name] = tenant.next_start;
    if (!tenant.line.empty()) {
      enter(name, tenant);
    } else if (tenant.more) {
      cut_ = true;
    }
  }
  return picks;
}

bool FairChoice::AnyoneLeft() const {
  return std::any_of(tenants_.begin(), tenants_.end(),
                     [](const auto& tenant) { return !tenant.second.line.empty() || tenant.second.more; });
}

int64_t FairPart(int64_t allowance, int32_t weight, int64_t all_weights) {
  return (allowance * weight + all_weights - 1) / std::max<int64_t>(1, all_weights) + 1;
}

int64_t FairWindow::Next() {
  // Four times what was taken, and it shrinks slowly, so that one small claim among large ones does not empty the
  // queue.
  if (took_ > 0) size_ = std::clamp(std::max(4 * took_, size_ * 3 / 4), kLeast, kMost);
  took_ = 0;
  return size_;
}

}  // namespace tenure::store
