// Dependencies: jobs that wait for others to end. Plain structs, and the store's part that accepts such jobs and lets
// them go. Layer: store. Thread-safe as the store is. docs/admission.md has the rules, docs/adr/0020 the reasons.
//
// A waiting job is blocked without standing at a gate. What it waits for is in rows of their own; a job that somebody
// waits for knows that much, so that what ends it can name it ("w" and its number, among the names of gates) to whoever
// looks for those that wait. Whether they may go is decided from rows then.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/types.h"

namespace tenure::store {

// Jobs that one job may wait for.
inline constexpr int kMaxDependencies = 100;
// In front of the number of a job that has ended, among the names of gates.
inline constexpr char kAwaitedMark = 'w';

// One of several jobs that are accepted together, of any queues.
struct GraphJob {
  int32_t queue = 0;
  NewJob
      job;  // `depends_on->items` are indexes into the graph, below its own; another stands for a job that was refused.
  absl::Status refused;  // Not OK: not accepted, for this reason.
};

struct GraphResult {
  std::vector<EnqueueOutcome> jobs;
  std::vector<ReadyRange> ready;
  std::optional<absl::Duration> earliest_due;
  GatesByQueue blocked;  // What some of them wait for, but for jobs.
  uint64_t xid = 0;
};

// What became of jobs that waited.
struct ResolveResult {
  int32_t released = 0;
  int32_t cancelled = 0;
  std::vector<JobId> ended;  // Those that were cancelled.
  std::vector<ReadyRange> ready;
  std::optional<absl::Duration> earliest_due;  // From now, of those that are not due yet.
  GatesByQueue look;                           // What the released wait for next, and who waits for the cancelled.
  std::vector<int64_t> again;                  // Of those asked for: somebody holds the row of one that waits for it.
  uint64_t xid = 0;
};

// A page of what is waited for.
struct DependencyPage {
  struct Cursor {
    int64_t awaited = 0;
    int64_t job = 0;
  };
  GatesByQueue ended;          // Marked numbers of jobs that have ended while somebody waits for them.
  int dropped = 0;             // Rows of jobs that wait no more.
  std::optional<Cursor> next;  // Absent: that was all.
};

class DependencyStore {
 public:
  virtual ~DependencyStore() = default;

  // Accepts a graph in one transaction; each item is answered for itself. Of an item: NOT_FOUND / JOB_NOT_FOUND (a job
  // that it waits for, or its record, is gone), FAILED_PRECONDITION / DEPENDENCY_REFUSED (an item that it waits for was
  // refused), UNAVAILABLE / JOB_LOCKED (another transaction holds a job that is waited for, for longer than some tenths
  // of a second), and what EnqueueUnique says. Of the call: UNAVAILABLE / JOB_LOCKED (held up again and again, by what
  // changes too fast to say by whom).
  virtual absl::StatusOr<GraphResult> EnqueueGraph(std::span<const GraphJob> jobs) = 0;
  // Lets go, or cancels, those that wait for `ended` (jobs of one queue that have ended; others are passed over), if
  // they need not wait any longer. Idempotent; may be called by every replica at any time.
  virtual absl::StatusOr<ResolveResult> ResolveDependents(int32_t queue, std::span<const int64_t> ended) = 0;
  // From `after` on, at most `limit` rows; forgets rows of jobs that wait no more.
  virtual absl::StatusOr<DependencyPage> SweepDependencies(const DependencyPage::Cursor& after, int limit) = 0;
};

}  // namespace tenure::store
