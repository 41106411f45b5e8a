// The engine's calls on limits: one store call each, on the engine's threads, after which who may pass is admitted.
// Layer: engine. Thread-safe; callbacks as for Engine, of which this is a part.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/store/admission.h"

namespace tenure::engine {

class AdmissionEngine {
 public:
  template <typename T>
  using LimitCallback = std::function<void(absl::StatusOr<T>)>;

  virtual ~AdmissionEngine() = default;

  // The queue is made if it does not exist, unless Options::create_queues is off: QUEUE_NOT_FOUND then. The rest as the
  // store's methods; the others find QUEUE_NOT_FOUND.
  virtual void SetLimit(std::string queue, store::LimitScope scope, std::string key, store::LimitSettings settings,
                        LimitCallback<store::Limit> done) = 0;
  virtual void GetLimit(std::string queue, store::LimitScope scope, std::string key,
                        LimitCallback<store::Limit> done) = 0;
  virtual void ListLimits(std::string queue, store::LimitScope after_scope, std::string after_key, int limit,
                          LimitCallback<std::vector<store::Limit>> done) = 0;
  // `true` when it is gone.
  virtual void DeleteLimit(std::string queue, store::LimitScope scope, std::string key, LimitCallback<bool> done) = 0;
  // Why a job is not running. NOT_FOUND / JOB_NOT_FOUND.
  virtual void Explain(const store::JobId& id, LimitCallback<store::Explanation> done) = 0;
  // Told by background workers of this process: gates to look at.
  virtual void NoteGates(const store::GatesByQueue& gates) = 0;
};

}  // namespace tenure::engine
