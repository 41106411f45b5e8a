// Shards: background work that is divided by queue is leased in ranges of 1,024 fixed shards, and the ranges follow the
// replicas that run the worker. Layer: store. Plain values; ShardOf and PlanShards are pure functions.
//
// How a division comes about. The database has one row per range and one per replica that takes part. Each replica
// reads both, and asks PlanShards what it has to do itself; whatever it then writes names the rows that it saw, and
// nothing is written if one of them has changed. What the division should be follows from the rows alone (the k-th of n
// live replicas gets the k-th n-th of the shards), so replicas with different settings never disagree:
//   - A replica gives up what it holds beyond its part, so that its new owner can take it.
//   - A replica takes what nobody holds of its part, under the next term.
//   - Nobody touches what another one holds.
// A shard whose work failed is given up alone, rests for a while, and is a range of its own until it has been well for
// five minutes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tenure::store {

inline constexpr int kShards = 1024;

// The shard of a queue. The same as tenure.shard_of in SQL.
constexpr int ShardOf(int32_t queue) {
  return static_cast<int>((static_cast<uint32_t>(queue) * uint32_t{2654435761}) >> 22);
}

// A range of shards under one term. Each write of a worker by shard passes one on; it is refused, row by row, for
// shards that the term no longer covers.
struct ShardFence {
  std::string worker;
  int32_t first = 0;
  int32_t last = 0;  // Inclusive.
  int64_t term = 0;

  bool Covers(int shard) const { return first <= shard && shard <= last; }
  friend bool operator==(const ShardFence&, const ShardFence&) = default;
};

// A held range, and how long its lease has yet by PostgreSQL's clock.
struct ShardLease {
  ShardFence fence;
  absl::Duration remaining;
};

// A row of tenure.shard_lease. One worker's rows cover every shard once, in order.
struct ShardRow {
  int32_t first = 0;
  int32_t last = kShards - 1;
  int64_t term = 0;
  int32_t replica = 0;  // 0: nobody's.
  absl::Time since = absl::InfinitePast();
  absl::Time expires = absl::InfinitePast();
  int32_t failures = 0;
  absl::Time retry = absl::InfinitePast();
  std::string last_error;

  friend bool operator==(const ShardRow&, const ShardRow&) = default;
};

// What a replica has to write: `remove` as they were read, `add` in their place. Rows of `add` that it holds get a
// whole lease. Both empty: nothing.
struct ShardChange {
  std::vector<ShardRow> remove;
  std::vector<ShardRow> add;
};

// What replica `self` has to do. `rows` in order; `members`: the ids of the replicas that take part, sorted; `self` may
// be missing from them, and then gives up everything. `now` is PostgreSQL's.
ShardChange PlanShards(std::span<const ShardRow> rows, std::span<const int32_t> members, int32_t self, absl::Time now);

// What remains of `row`, held by a replica, when it gives up one of its shards because its work failed: that shard
// rests, for longer each time in a row (1 s, 5 s, 30 s, 2 min).
ShardChange FailShard(const ShardRow& row, int shard, std::string error, absl::Time now);

// "0-340, 342-512"; neighbours are joined.
std::string FormatShards(std::span<const ShardRow> rows);

}  // namespace tenure::store
