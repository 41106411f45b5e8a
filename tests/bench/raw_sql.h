// The raw SQL limit: what a careful person would write by hand on the same PostgreSQL, without a daemon, with a table
// of the same shape, 1,000 rows a statement, and nothing that makes a queue safe or convenient beyond that: no events,
// no counts, no waking, no replay, no partitions. The statements are in raw_sql.cc. Layer: tests (benchmark). The
// functions are contestants: see scenario.h.
#pragma once

#include "absl/status/statusor.h"
#include "scenario.h"

namespace tenure::bench {

absl::StatusOr<Figures> RawEnqueue(RunContext& run);
absl::StatusOr<Figures> RawDrain(RunContext& run);
// One session enqueues while another claims and completes.
absl::StatusOr<Figures> RawLifecycle(RunContext& run);
// Claims and completes one job a statement, by several sessions at once.
absl::StatusOr<Figures> RawSingle(RunContext& run);
// Extends all leases each time that a third of their duration has passed.
absl::StatusOr<Figures> RawHeartbeat(RunContext& run);
// As lifecycle, without an end, while a transaction is held open.
absl::StatusOr<Figures> RawHeld(RunContext& run);

}  // namespace tenure::bench
