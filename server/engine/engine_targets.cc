// EngineImpl: targets. Layer: engine. Thread-safe.
#include <utility>

#include "server/base/status.h"
#include "server/engine/engine_impl.h"

namespace tenure::engine {

absl::StatusOr<std::vector<int32_t>> EngineImpl::EnsureQueues(const std::vector<std::string>& names) {
  std::vector<int32_t> ids;
  for (const std::string& name : names) {
    TENURE_ASSIGN_OR_RETURN(const store::Queue queue, store_.EnsureQueue(name, options_.create_queues));
    directory_.LearnIfNew(queue);
    ids.push_back(queue.id);
  }
  return ids;
}

void EngineImpl::CreateTarget(std::string name, store::TargetSettings settings, bool paused,
                              Callback<store::Target> done) {
  executor_.Post(
      [this, name = std::move(name), settings = std::move(settings), paused, done = Tracked(std::move(done))] {
        const absl::StatusOr<std::vector<int32_t>> queues = EnsureQueues(settings.queues);
        if (!queues.ok()) return done(queues.status());
        done(store_.CreateTarget(name, settings, *queues, paused));
      });
}

void EngineImpl::UpdateTarget(std::string name, store::TargetSettings settings, std::set<std::string> fields,
                              TargetCheck check, Callback<store::Target> done) {
  executor_.Post([this, name = std::move(name), settings = std::move(settings), fields = std::move(fields),
                  check = std::move(check), done = Tracked(std::move(done))] {
    const absl::StatusOr<std::vector<int32_t>> queues = EnsureQueues(settings.queues);
    if (!queues.ok()) return done(queues.status());
    done(store_.UpdateTarget(name, settings, *queues, fields, check));
  });
}

void EngineImpl::GetTarget(std::string name, Callback<store::Target> done) {
  executor_.Post([this, name = std::move(name), done = Tracked(std::move(done))] { done(store_.GetTarget(name)); });
}

void EngineImpl::ListTargets(std::string after_name, std::string prefix, int limit,
                             Callback<std::vector<store::Target>> done) {
  executor_.Post([this, after_name = std::move(after_name), prefix = std::move(prefix), limit,
                  done = Tracked(std::move(done))] { done(store_.ListTargets(after_name, prefix, limit)); });
}

void EngineImpl::DeleteTarget(std::string name, Callback<bool> done) {
  executor_.Post([this, name = std::move(name), done = Tracked(std::move(done))] {
    const absl::Status gone = store_.DeleteTarget(name);
    if (!gone.ok()) return done(gone);
    done(true);
  });
}

void EngineImpl::SetTargetPaused(std::string name, bool paused, Callback<store::Target> done) {
  executor_.Post([this, name = std::move(name), paused, done = Tracked(std::move(done))] {
    done(store_.SetTargetPaused(name, paused));
  });
}

void EngineImpl::ListDeadDeliveries(std::string name, int64_t after, int limit,
                                    Callback<std::vector<store::Delivery>> done) {
  executor_.Post([this, name = std::move(name), after, limit, done = Tracked(std::move(done))] {
    done(store_.ListDeadDeliveries(name, after, limit));
  });
}

void EngineImpl::RedriveDeliveries(std::string name, std::vector<int64_t> ids, Callback<store::Redriven> done) {
  executor_.Post([this, name = std::move(name), ids = std::move(ids), done = Tracked(std::move(done))] {
    done(store_.RedriveDeliveries(name, ids));
  });
}

}  // namespace tenure::engine
