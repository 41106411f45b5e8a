// Moves: dead letters, or a backlog, go to another queue at a bounded rate. Public header of tenure::client; no gRPC or
// protobuf types. Thread-safety: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tenure/types.h"

namespace tenure::client {

enum class MoveSource {
  kDeadLetters = 1,  // Those there are now. Each becomes a new ready job with fresh budgets.
  kBacklog = 2,      // Live jobs, but for those that are leased. Each goes on under a new id.
};

enum class MoveState { kUnknown = 0, kRunning = 1, kPaused = 2, kDone = 3, kCancelled = 4 };

// What the caller decides. The queues and the source are required.
struct MoveSpec {
  std::string from_queue;
  std::string to_queue;  // For dead letters it may be the same.
  MoveSource source = MoveSource::kDeadLetters;
  std::vector<std::string> kinds;      // Only these, at most 100. Default: all.
  std::optional<int> jobs_per_second;  // From 1 to 100,000. Default: as fast as it goes.
  std::optional<int> max_in_flight;    // At most so many of its jobs are live, 1 to 10,000. Default: no bound.
};

// A move as the daemon knows it.
struct Move {
  std::string id;
  MoveSpec spec;
  MoveState state = MoveState::kUnknown;
  bool standing = false;  // The rule of a queue (dead_letter_queue); only UpdateQueue steers it.
  int64_t moved_jobs = 0;
  int64_t failed_jobs = 0;  // Passed over: their payload is gone.
  std::string last_error;   // Of the last batch; it is tried again.
  std::optional<Time> create_time;
  std::optional<Time> update_time;
  std::optional<Time> end_time;
};

struct MovePage {
  std::vector<Move> moves;  // The newest first.
  std::string next_page_token;
};

}  // namespace tenure::client
