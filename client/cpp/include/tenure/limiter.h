// SlotLimiter: how many jobs one process runs at once, how many of these slots are kept for urgent jobs, and how many
// one tenant may take. WorkerPool uses it; several pools may share one, and so may a loop of your own. Public header of
// tenure::client. Thread-safe. Never blocks: TryAcquire answers a permit or NotAdmitted.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tenure/lease.h"

namespace tenure::client {

struct SlotLimits {
  int slots = 16;                             // Jobs at once; at least 1.
  std::vector<SlotReservation> reservations;  // Together at most `slots`.
  int slots_per_tenant = 0;  // Of one tenant at once. 0: no bound. Jobs without a tenant are not bound.
};

// Why a job may not start now.
enum class NotAdmitted {
  kNoSlot,    // All slots are taken.
  kReserved,  // The slots that are left are kept for higher priorities.
  kTenant,    // The tenant has all the slots that it may take.
};

class SlotLimiter;

// One slot, given back when it is destroyed. Movable. Must not outlive the process's interest in it; keeps the limiter
// alive.
class SlotPermit {
 public:
  SlotPermit() = default;
  SlotPermit(SlotPermit&& other) noexcept { *this = std::move(other); }
  SlotPermit& operator=(SlotPermit&& other) noexcept;
  ~SlotPermit() { Release(); }
  // Gives the slot back now. Calling it again does nothing.
  void Release();
  bool held() const { return limiter_ != nullptr; }

 private:
  friend class SlotLimiter;
  SlotPermit(std::shared_ptr<SlotLimiter> limiter, int priority, std::string tenant)
      : limiter_(std::move(limiter)), priority_(priority), tenant_(std::move(tenant)) {}
  std::shared_ptr<SlotLimiter> limiter_;
  int priority_ = 0;
  std::string tenant_;
};

class SlotLimiter : public std::enable_shared_from_this<SlotLimiter> {
 public:
  // Limits that contradict each other are clamped: slots below 1 to 1, reservations beyond `slots` to what is left.
  static std::shared_ptr<SlotLimiter> Make(SlotLimits limits);
  virtual ~SlotLimiter() = default;

  // Takes a slot for a job of this priority and tenant, or says why not. Effect: none if not admitted.
  virtual std::variant<SlotPermit, NotAdmitted> TryAcquire(int priority, std::string_view tenant) = 0;
  // Slots that a job of this priority, without a tenant, could take now.
  virtual int Free(int priority) const = 0;
  // Slots taken now.
  virtual int in_use() const = 0;
  // Slots taken now by jobs of a priority below this one, which must be the min_priority of a reservation (0 for
  // others).
  virtual int InUseBelow(int priority) const = 0;
  // Tenants that have all the slots they may have once so many more of each have begun; at most `limit`, by name.
  virtual std::vector<std::string> FullTenants(const std::map<std::string, int>& more, size_t limit) const = 0;
  virtual const SlotLimits& limits() const = 0;

  // Calls `listener` after a slot was given back, on the thread that gave it back; it must not block. The subscription
  // ends when the returned handle is destroyed.
  virtual std::shared_ptr<void> OnRelease(std::function<void()> listener) = 0;

 protected:
  friend class SlotPermit;
  SlotPermit MakePermit(int priority, std::string tenant) {
    return SlotPermit(shared_from_this(), priority, std::move(tenant));
  }
  virtual void GiveBack(int priority, const std::string& tenant) = 0;
};

}  // namespace tenure::client
