// The engine's calls on moves: one store call each, on the engine's threads. Layer: engine. Thread-safe; callbacks as
// for Engine, of which this is a part.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/store/moves.h"

namespace tenure::engine {

class MoveEngine {
 public:
  template <typename T>
  using MoveCallback = std::function<void(absl::StatusOr<T>)>;

  virtual ~MoveEngine() = default;

  // The source queue must exist: NOT_FOUND / QUEUE_NOT_FOUND. The target is made if it does not, unless
  // Options::create_queues is off. The rest as the store's methods of the same names.
  virtual void CreateMove(store::MoveSpec spec, std::string request_id, MoveCallback<store::Move> done) = 0;
  virtual void GetMove(int64_t id, MoveCallback<store::Move> done) = 0;
  virtual void ListMoves(int64_t before, int limit, MoveCallback<std::vector<store::Move>> done) = 0;
  virtual void SetMoveState(int64_t id, store::MoveState state, MoveCallback<store::Move> done) = 0;
};

}  // namespace tenure::engine
