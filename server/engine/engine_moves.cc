// EngineImpl: moves. Layer: engine. Thread-safe.
#include <utility>

#include "server/engine/engine_impl.h"

namespace tenure::engine {

void EngineImpl::CreateMove(store::MoveSpec spec, std::string request_id, Callback<store::Move> done) {
  executor_.Post([this, spec = std::move(spec), request_id = std::move(request_id), done = Tracked(std::move(done))] {
    const absl::StatusOr<store::Queue> from = store_.EnsureQueue(spec.from, false);
    if (!from.ok()) return done(from.status());
    const absl::StatusOr<store::Queue> to = store_.EnsureQueue(spec.to, options_.create_queues);
    if (!to.ok()) return done(to.status());
    directory_.LearnIfNew(*to);
    done(store_.CreateMove(spec, from->id, to->id, request_id));
  });
}

void EngineImpl::GetMove(int64_t id, Callback<store::Move> done) {
  executor_.Post([this, id, done = Tracked(std::move(done))] { done(store_.GetMove(id)); });
}

void EngineImpl::ListMoves(int64_t before, int limit, Callback<std::vector<store::Move>> done) {
  executor_.Post([this, before, limit, done = Tracked(std::move(done))] { done(store_.ListMoves(before, limit)); });
}

void EngineImpl::SetMoveState(int64_t id, store::MoveState state, Callback<store::Move> done) {
  executor_.Post([this, id, state, done = Tracked(std::move(done))] { done(store_.SetMoveState(id, state)); });
}

}  // namespace tenure::engine
