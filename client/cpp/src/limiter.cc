// See tenure/limiter.h. Slots in use are counted below each reservation's priority, so that a job's admission is one
// comparison per reservation that is above it.
#include "tenure/limiter.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

namespace tenure::client {
namespace {

class Limiter : public SlotLimiter {
 public:
  explicit Limiter(SlotLimits limits) : limits_(Clamp(std::move(limits))) {
    std::map<int, int> by_priority;
    for (const SlotReservation& kept : limits_.reservations) by_priority[kept.min_priority] += kept.slots;
    int reserved = 0;
    for (auto kept = by_priority.rbegin(); kept != by_priority.rend(); ++kept) {
      reserved += kept->second;
      thresholds_.push_back({kept->first, limits_.slots - reserved, 0});
    }
  }

  std::variant<SlotPermit, NotAdmitted> TryAcquire(int priority, std::string_view tenant) override {
    const bool bound = limits_.slots_per_tenant > 0 && !tenant.empty();
    std::string name(bound ? tenant : std::string_view());
    {
      std::lock_guard lock(mutex_);
      if (in_use_ >= limits_.slots) return NotAdmitted::kNoSlot;
      for (const Threshold& threshold : thresholds_) {
        if (priority < threshold.priority && threshold.in_use >= threshold.allowed) return NotAdmitted::kReserved;
      }
      if (bound) {
        int& taken = tenants_[name];
        if (taken >= limits_.slots_per_tenant) return NotAdmitted::kTenant;
        ++taken;
      }
      ++in_use_;
      for (Threshold& threshold : thresholds_) threshold.in_use += priority < threshold.priority ? 1 : 0;
    }
    return MakePermit(priority, std::move(name));
  }

  int Free(int priority) const override {
    std::lock_guard lock(mutex_);
    int free = limits_.slots - in_use_;
    for (const Threshold& threshold : thresholds_) {
      if (priority < threshold.priority) free = std::min(free, threshold.allowed - threshold.in_use);
    }
    return std::max(free, 0);
  }

  int in_use() const override {
    std::lock_guard lock(mutex_);
    return in_use_;
  }

  int InUseBelow(int priority) const override {
    std::lock_guard lock(mutex_);
    for (const Threshold& threshold : thresholds_) {
      if (threshold.priority == priority) return threshold.in_use;
    }
    return 0;
  }

  std::vector<std::string> FullTenants(const std::map<std::string, int>& more, size_t limit) const override {
    std::vector<std::string> full;
    if (limits_.slots_per_tenant == 0) return full;
    std::map<std::string, int> taken = more;
    taken.erase(std::string());  // Jobs without a tenant are not bound.
    {
      std::lock_guard lock(mutex_);
      for (const auto& [tenant, slots] : tenants_) taken[tenant] += slots;
    }
    for (const auto& [tenant, slots] : taken) {
      if (slots >= limits_.slots_per_tenant && full.size() < limit) full.push_back(tenant);
    }
    return full;
  }

  const SlotLimits& limits() const override { return limits_; }

  std::shared_ptr<void> OnRelease(std::function<void()> listener) override {
    auto subscription = std::make_shared<std::function<void()>>(std::move(listener));
    std::lock_guard lock(mutex_);
    listeners_.push_back(subscription);
    return subscription;
  }

 protected:
  void GiveBack(int priority, const std::string& tenant) override {
    std::vector<std::shared_ptr<std::function<void()>>> listeners;
    {
      std::lock_guard lock(mutex_);
      --in_use_;
      for (Threshold& threshold : thresholds_) threshold.in_use -= priority < threshold.priority ? 1 : 0;
      if (!tenant.empty()) {
        const auto taken = tenants_.find(tenant);
        // Tenants come and go by the thousand: only those that run something are kept.
        if (--taken->second == 0) tenants_.erase(taken);
      }
      if (!listeners_.empty()) {
        std::erase_if(listeners_, [](const auto& listener) { return listener.expired(); });
        for (const auto& listener : listeners_) listeners.push_back(listener.lock());
      }
    }
    for (const auto& listener : listeners) {
      if (listener) (*listener)();
    }
  }

 private:
  struct Threshold {
    int priority;  // Jobs below it may take
    int allowed;   // so many slots,
    int in_use;    // and take so many now.
  };

  static SlotLimits Clamp(SlotLimits limits) {
    limits.slots = std::max(limits.slots, 1);
    limits.slots_per_tenant = std::max(limits.slots_per_tenant, 0);
    int left = limits.slots;
    for (SlotReservation& kept : limits.reservations) {
      kept.slots = std::clamp(kept.slots, 0, left);
      left -= kept.slots;
    }
    std::erase_if(limits.reservations, [](const SlotReservation& kept) { return kept.slots == 0; });
    return limits;
  }

  const SlotLimits limits_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  int in_use_ = 0;
  std::vector<Threshold> thresholds_;  // Highest priority first.
  std::unordered_map<std::string, int> tenants_;
  std::vector<std::weak_ptr<std::function<void()>>> listeners_;
};

}  // namespace

std::shared_ptr<SlotLimiter> SlotLimiter::Make(SlotLimits limits) {
  return std::make_shared<Limiter>(std::move(limits));
}

SlotPermit& SlotPermit::operator=(SlotPermit&& other) noexcept {
  if (this != &other) {
    Release();
    limiter_ = std::move(other.limiter_);
    priority_ = other.priority_;
    tenant_ = std::move(other.tenant_);
  }
  return *this;
}

void SlotPermit::Release() {
  if (const std::shared_ptr<SlotLimiter> limiter = std::move(limiter_)) limiter->GiveBack(priority_, tenant_);
}

}  // namespace tenure::client
