// Admission: what a job has to pass between being due and being ready. Plain structs, and the store's part that admits.
// Layer: store. Thread-safe as the store is. docs/admission.md has the rules, docs/adr/0018 the reasons.
//
// A job passes its gates in one order: its group, its concurrency keys (sorted), its queue. It holds what it has passed
// and waits at the next; since everybody takes them in the same order, nobody waits in a circle, and since each gate
// serves its line in one order, nobody waits for ever. What is held is counted from rows.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/types.h"

namespace tenure::store {

// At most `burst` starts at once, and one per `interval` in the long run.
struct Rate {
  absl::Duration interval;
  int32_t burst = 1;
};

// kTenant: its weight in a queue whose tenants take turns; it has no max_leased and no rate.
enum class LimitScope : int16_t { kKey = 1, kPrefix = 2, kQueue = 3, kTenant = 4 };

struct LimitSettings {
  std::optional<int32_t> max_leased;  // 0: nothing is admitted.
  std::optional<Rate> rate;
  std::optional<int32_t> weight = std::nullopt;  // Turns, where a tenant without a weight gets one.
};

// How a key (or queue) stands.
struct LimitUsage {
  int64_t held = 0;     // Admitted, counted up to max_leased.
  int64_t waiting = 0;  // Counted up to kWaitingCounted.
  std::optional<absl::Duration> paused_for;
  std::optional<absl::Duration> next_start_in;  // Until the rate lets the next one pass; absent: at once.
};
inline constexpr int64_t kWaitingCounted = 1000;
// Prefix limits of one queue: each key is compared with all of them.
inline constexpr int kMaxPrefixLimits = 100;
// Concurrency keys of one job.
inline constexpr int kMaxKeys = 4;

struct Limit {
  LimitScope scope = LimitScope::kKey;
  std::string key;  // Empty for a queue; the tenant's name for a tenant.
  LimitSettings settings;
  absl::Time created;
  absl::Time updated;
  std::optional<LimitUsage> usage;  // Of a key or a queue, from FindLimit.
};

struct AdmitResult {
  std::vector<ReadyRange> ready;
  uint64_t xid = 0;
  int32_t admitted = 0;
  int32_t moved = 0;  // Went on to a later gate, where they wait.
  GateNames again;    // Had more than one transaction takes: look at once.
  struct Later {
    std::string name;
    absl::Duration after;
  };
  std::vector<Later> later;  // A rate, a pause or a locked row holds somebody up until then.
};

// A page of what jobs wait for, over all queues.
struct BlockedPage {
  struct Cursor {
    int sort = 1;  // Of blocked_names.sql.
    int32_t queue = 0;
    std::string name;
  };
  GatesByQueue names;
  std::optional<Cursor> next;  // Absent: that was all.
};

// Why a job is not running, first things first.
enum class WaitReason {
  kEnded = 1,
  kLeased,       // It runs: `until`.
  kQueuePaused,  // No claims.
  kScheduled,    // Not due: `until`.
  kSuspended,
  kGroup,          // Behind `ahead`, whose state is `ahead_state`.
  kKeyFull,        // `key` has `limit` jobs: `holders`. `position` in its line.
  kKeyRate,        // `key` lets the next one pass at `until`.
  kKeyPaused,      // Until `until`.
  kQueueFull,      // The queue has `limit` jobs. `position` in its line.
  kQueueRate,      // The queue lets the next one pass at `until`.
  kBeingAdmitted,  // Nothing holds it up any more.
  kReady,          // Claimable: `position` in line.
  kNoWorker,       // Nobody has asked for jobs of its queue for two minutes.
  kTenantTurn,     // Its tenant (`key`) is not due for a turn yet. `position` in the tenant's line.
  kDependency,     // Waits for `holders` to end.
};

struct WaitCause {
  WaitReason reason = WaitReason::kEnded;
  std::string key;
  std::optional<absl::Time> until;
  std::optional<int64_t> limit;
  std::vector<JobId> holders;  // Some of them.
  std::optional<JobId> ahead;
  JobState ahead_state = JobState::kReady;
  int64_t position = 0;  // From 1; 0: does not apply. Counted up to kWaitingCounted.
  // Of a turn: jobs of the queue that are ready and go before it, and tenants that wait for turns, its own among them.
  // Counted up to kWaitingCounted, and one more for "more".
  int64_t ready_jobs = 0;
  int64_t tenants = 0;
};

struct Explanation {
  Job job;
  std::vector<WaitCause> causes;  // Not empty.
};

// What one step of a recall did.
struct RecallStep {
  int32_t recalled = 0;  // Ready jobs that stand at the queue's gate now.
  bool more = false;     // A step at once finds more.
};

// How a queue admits just now, counted from rows.
struct AdmissionCounts {
  // Jobs counted of each reason at most.
  static constexpr int64_t kMost = 1'000'000;
  // Tenants in all.
  static constexpr int64_t kMostTenants = 10'000;

  int32_t queue = 0;
  std::string name;
  bool fair = false;  // Its tenants take turns.
  // Blocked jobs, by what they wait for: other jobs, their group, a key, the queue's own gate.
  int64_t dependency = 0, group = 0, key = 0, gate = 0;
  int64_t tenants = 0;         // That wait for turns.
  std::optional<int32_t> max;  // The queue's limit ...
  int64_t held = 0;            // ... and how much of it is taken; counted up to it.
  bool has_rate = false;
};

class AdmissionStore {
 public:
  virtual ~AdmissionStore() = default;

  // Admits who waits for `names` (gates of one queue) and may pass, at most some `limit` jobs; of a queue whose tenants
  // take turns, until `fair_window` jobs are ready. Idempotent; may be called by every replica at any time. Waits for
  // another admission of the same queue, not for anything else.
  virtual absl::StatusOr<AdmitResult> Admit(int32_t queue, std::span<const std::string> names, int limit,
                                            int64_t fair_window) = 0;
  // From `after` on, at most `limit` names. Some of them may have nobody waiting by the time they are looked at.
  virtual absl::StatusOr<BlockedPage> BlockedNames(const BlockedPage::Cursor& after, int limit) = 0;

  // Queues that got a gate of their own, or whose tenants began to take turns, while jobs were ready: those jobs are
  // sent back to the gate. At most `limit`, in their order.
  virtual absl::StatusOr<std::vector<int32_t>> Recalls(int limit) = 0;
  // One step of it, over at most `limit` ready or leased jobs. Any replica may make the next one at any time: where it
  // stands is a row. Claims of the queue wait while it commits. Idempotent; nothing where there is no recall.
  virtual absl::StatusOr<RecallStep> Recall(int32_t queue, int limit) = 0;
  // Of the queues that have a gate of their own or blocked jobs, in their order; which have blocked jobs is known as of
  // the last FoldStats. For metrics: it reads the index entries of all jobs with keys and the rows of those with
  // groups.
  virtual absl::StatusOr<std::vector<AdmissionCounts>> CountBlocked() = 0;

  // Why a job is not running, or that it is. What it says was so in one short transaction. NOT_FOUND / JOB_NOT_FOUND.
  virtual absl::StatusOr<Explanation> Explain(const JobId& id) = 0;

  // Sets a limit as a whole. Holds for every admission that begins after it returned; what is admitted stays.
  // FAILED_PRECONDITION / TOO_MANY_LIMITS beyond kMaxPrefixLimits.
  virtual absl::StatusOr<Limit> SetLimit(int32_t queue, LimitScope scope, std::string_view key,
                                         const LimitSettings& settings) = 0;
  // With its usage. NOT_FOUND / LIMIT_NOT_FOUND.
  virtual absl::StatusOr<Limit> FindLimit(int32_t queue, LimitScope scope, std::string_view key) = 0;
  virtual absl::StatusOr<std::vector<Limit>> ListLimits(int32_t queue, LimitScope after_scope,
                                                        std::string_view after_key, int limit) = 0;
  // NOT_FOUND / LIMIT_NOT_FOUND.
  virtual absl::Status DeleteLimit(int32_t queue, LimitScope scope, std::string_view key) = 0;
};

}  // namespace tenure::store
