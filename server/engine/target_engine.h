// The engine's calls on targets: one store call each, on the engine's threads. Layer: engine. Thread-safe; callbacks as
// for Engine, of which this is a part.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/store/targets.h"

namespace tenure::engine {

class TargetEngine {
 public:
  template <typename T>
  using TargetCallback = std::function<void(absl::StatusOr<T>)>;
  // Whether settings are sound as a whole.
  using TargetCheck = std::function<absl::Status(const store::TargetSettings&)>;

  virtual ~TargetEngine() = default;

  // The target's queues are made if they do not exist, unless Options::create_queues is off: QUEUE_NOT_FOUND then. The
  // rest as the store's methods of the same names.
  virtual void CreateTarget(std::string name, store::TargetSettings settings, bool paused,
                            TargetCallback<store::Target> done) = 0;
  virtual void UpdateTarget(std::string name, store::TargetSettings settings, std::set<std::string> fields,
                            TargetCheck check, TargetCallback<store::Target> done) = 0;
  virtual void GetTarget(std::string name, TargetCallback<store::Target> done) = 0;
  virtual void ListTargets(std::string after_name, std::string prefix, int limit,
                           TargetCallback<std::vector<store::Target>> done) = 0;
  // `true` when it is gone.
  virtual void DeleteTarget(std::string name, TargetCallback<bool> done) = 0;
  virtual void SetTargetPaused(std::string name, bool paused, TargetCallback<store::Target> done) = 0;
  virtual void ListDeadDeliveries(std::string name, int64_t after, int limit,
                                  TargetCallback<std::vector<store::Delivery>> done) = 0;
  virtual void RedriveDeliveries(std::string name, std::vector<int64_t> ids, TargetCallback<store::Redriven> done) = 0;
};

}  // namespace tenure::engine
