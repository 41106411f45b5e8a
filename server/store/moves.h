// Moves: a queue's dead letters, or its backlog, go to another queue (or the dead letters back to their own) in small
// batches, at a bounded rate. A moved job gets a new id; the old id's record says which. Layer: store. Plain values,
// and the part of the store that keeps them. Thread-safe; errors common to all methods as in store.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/shards.h"
#include "server/store/types.h"

namespace tenure::store {

// Stored numbers; never renumber.
enum class MoveSource : int16_t {
  kDeadLetters = 1,  // Those there were when the move was made. Each becomes a ready job with fresh budgets.
  // Live jobs that are neither leased nor suspended, also those that come while it runs. Counters and due times stay.
  kBacklog = 2,
};
enum class MoveState : int16_t { kRunning = 1, kPaused = 2, kDone = 3, kCancelled = 4 };

struct MoveSpec {
  std::string from;
  std::string to;
  MoveSource source = MoveSource::kDeadLetters;
  std::vector<std::string> kinds;        // Empty: all.
  std::optional<int32_t> rate;           // Jobs a second. Absent: as fast as it goes.
  std::optional<int32_t> max_in_flight;  // Of the jobs that it made. Absent: no bound.
};

struct Move {
  int64_t id = 0;
  // The rule of a queue (QueueSettings::dead_letter_queue), which made it, steers it and never ends it: what dies while
  // the rule stands is moved.
  bool standing = false;
  MoveSpec spec;
  MoveState state = MoveState::kRunning;
  int64_t moved = 0;
  int64_t failed = 0;  // Passed over, since their payload is gone.
  std::string last_error;
  absl::Time created;
  absl::Time updated;
  std::optional<absl::Time> ended;
};

struct MoveStep {
  int64_t moved = 0;
  std::string what;  // For metrics: "backlog", "dead_letters", "dead_letter_rule".
  std::vector<ReadyRange> ready;
  std::optional<absl::Duration> earliest_due;  // From now, of what was moved and is scheduled.
  bool ended = false;                          // There is nothing more to move, or it does not run any more.
  absl::Duration wait;                         // Until the next step is of use.
};

class MoveStore {
 public:
  virtual ~MoveStore() = default;

  // `from` and `to`: the numbers of the spec's queues. `request_id` empty: none; with one, a repeat answers with the
  // move that the first call made.
  virtual absl::StatusOr<Move> CreateMove(const MoveSpec& spec, int32_t from, int32_t to,
                                          std::string_view request_id) = 0;
  // NOT_FOUND / MOVE_NOT_FOUND.
  virtual absl::StatusOr<Move> GetMove(int64_t id) = 0;
  // Newest first, those with an id below `before` (0: all).
  virtual absl::StatusOr<std::vector<Move>> ListMoves(int64_t before, int limit) = 0;
  // Returns once no step that began before can still move a job. To the state that it is in: nothing happens.
  // FAILED_PRECONDITION / MOVE_ENDED if it is done or cancelled, and `state` is another; MOVE_STANDING if it is one.
  virtual absl::StatusOr<Move> SetMoveState(int64_t id, MoveState state) = 0;

  // The ids of those that run, at most 100, and of those standing ones that have something to move, at most 100 more.
  virtual absl::StatusOr<std::vector<int64_t>> ListRunningMoves() = 0;
  // Moves the next jobs, at most `limit`, as many as rate and flight allow: the old record, the new job, the link and
  // the move's own counts in one transaction, so that it can be cut short and repeated at any moment. Fenced.
  virtual absl::StatusOr<MoveStep> StepMove(const Fence& fence, int64_t id, int limit) = 0;
  // Writes down why a step failed. Fenced.
  virtual absl::Status NoteMoveError(const Fence& fence, int64_t id, std::string_view error) = 0;
  // Forgets links older than `age`, moves that ended before, and what standing moves had left over of dead letters that
  // died before, at most `limit` of each. Fenced by shard 0.
  virtual absl::StatusOr<int> PruneMoves(const ShardFence& fence, absl::Duration age, int limit) = 0;
};

}  // namespace tenure::store
