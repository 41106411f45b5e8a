// Plain structs between the engine and the store. No protobuf, no libpq. Layer: store. Times are absl::Time by
// PostgreSQL's clock; absent times are absl::InfiniteFuture() where "never" is meant, else std::optional.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/store/ids.h"

namespace tenure::store {

// Stored numbers; never renumber. The live ones are what tenure.job.state holds.
enum class JobState : int16_t {
  kScheduled = 1,
  kBlocked = 2,
  kReady = 3,
  kLeased = 4,
  kSuspended = 5,
  kCompleted = 6,
  kDiscarded = 7,
  kCancelled = 8,
  kExpired = 9,
};
constexpr bool IsFinal(JobState state) { return state >= JobState::kCompleted; }

// What ended a lease or a job; stored with the token that it ended. Never renumber.
enum class Verb : int16_t { kComplete = 1, kFail = 2, kRelease = 3, kSnooze = 4, kCancel = 5, kReap = 6, kExpire = 7 };

struct Backoff {
  int64_t initial_us = 1'000'000;
  double multiplier = 2;
  int64_t max_us = 3'600'000'000;
};

struct Payload {
  std::string data;
  std::string content_type;
};

using Headers = std::map<std::string, std::string>;

// What jobs of a queue wait for before they are ready, by name: "k" and a concurrency key, "g" and a group, "q" the
// queue itself.
using GateNames = std::vector<std::string>;
using GatesByQueue = std::map<int32_t, GateNames>;

// What an enqueue does when a job with its unique key counts already. Never renumber.
enum class OnConflict : int16_t {
  kReturn = 1,                // Answer with that job.
  kReplace = 2,               // And give it this payload, content type and headers.
  kReschedule = 3,            // And this due time.
  kReplaceAndReschedule = 4,  // Both.
  kReject = 5,                // ALREADY_EXISTS / UNIQUE_CONFLICT.
};

// Of jobs with the same key one counts. The key is held by the job that was last accepted with it.
struct Unique {
  std::string key;
  bool by_kind = false;  // Jobs of another kind do not count; else all of the queue with a key of this scope do.
  std::vector<JobState> states;  // In which the holder counts. Live ones only.
  absl::Duration period;         // For kReturn and kReject: it counts for so long since its enqueue, also once ended.
  OnConflict on_conflict = OnConflict::kReturn;
};

// A job that is blocked until others have ended.
struct DependsOn {
  std::vector<JobId> jobs;
  std::vector<int32_t> items;       // Indexes of earlier jobs of the same graph.
  bool all_ended = false;           // However they end; else they must complete.
  bool release_on_failure = false;  // One that did not complete releases the job; else it cancels it.
};

// Validated by the caller (rpc/), except what only the database knows.
struct NewJob {
  std::string kind;
  Payload payload;
  Headers headers;
  int16_t priority = 0;
  std::string tenant;
  std::optional<absl::Time> due;
  std::optional<absl::Duration> delay;
  std::optional<absl::Time> expires;
  std::optional<absl::Duration> ttl;
  std::optional<int32_t> max_attempts;  // Default: the queue's.
  std::optional<int32_t> crash_budget;
  std::optional<Backoff> backoff;
  std::string idempotency_key;  // Empty: none.
  absl::Duration idempotency_retention = absl::Hours(24);
  std::string effect_key;                     // Empty: the id.
  std::vector<std::string> concurrency_keys;  // Sorted, distinct, at most 4.
  std::string group;                          // Empty: none.
  std::optional<Unique> unique;
  std::optional<DependsOn> depends_on;
};

struct EnqueueOutcome {
  absl::Status status;  // ALREADY_EXISTS / IDEMPOTENCY_CONFLICT, UNIQUE_CONFLICT; OK otherwise.
  JobId id;
  bool duplicate = false;
  bool existing = false;  // The job that held the unique key.
  JobState state = JobState::kReady;
  std::shared_ptr<const NewJob> busy;  // Set by the engine on KEY_BUSY: the job, which may be tried again.
};

// A stretch of the ready index of one (queue, priority): what a transaction made ready. Law: everything that makes rows
// ready tells the lowest and highest key it touched.
struct Key {
  int64_t rank = std::numeric_limits<int64_t>::min();
  int64_t id = 0;
  friend bool operator==(const Key&, const Key&) = default;
  friend auto operator<=>(const Key&, const Key&) = default;
};
inline constexpr Key kLowestKey{std::numeric_limits<int64_t>::min(), 0};
inline constexpr Key kHighestKey{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()};

struct ReadyRange {
  int32_t queue = 0;
  int16_t priority = 0;
  Key low;
  Key high;
  int32_t count = 0;
  uint64_t xid = 0;  // In an EventBatch: the transaction that made them ready.
};

struct Lease {
  std::string worker;
  absl::Time expires;
  absl::Time granted;
  int32_t number = 0;
};

struct JobError {
  std::string message;
  std::string type;
  std::string detail;
  int32_t attempt = 0;
  absl::Time at;
};

struct Progress {
  double fraction = 0;
  std::string message;
};

// A job as it stands, live or ended.
struct Job {
  JobId id;
  std::string kind;
  JobState state = JobState::kReady;
  Payload payload;
  Headers headers;
  int16_t priority = 0;
  std::string tenant;
  int32_t attempt = 0;
  int32_t failures = 0;
  int32_t max_attempts = 0;
  int32_t crashes = 0;
  int32_t crash_budget = 0;
  int32_t releases = 0;
  int32_t snoozes = 0;
  std::string effect_key;
  std::string retry_of;
  std::string forwarded_to;  // Only from Get: where this job is now, if it was moved.
  std::string idempotency_key;
  absl::Time created;
  absl::Time due;
  absl::Time updated;
  std::optional<absl::Time> started;
  std::optional<absl::Time> ended;
  std::optional<absl::Time> expires;
  std::optional<Lease> lease;
  std::optional<JobError> error;
  std::optional<Payload> result;
  std::optional<Progress> progress;
  std::optional<Backoff> backoff;
  std::vector<std::string> concurrency_keys;  // Not of claims.
  std::string group;                          // Not of claims.
  std::string unique_key;                     // Not of claims.
  bool unique_by_kind = false;
};

struct ClaimedJob {
  Job job;
  LeaseToken token;
  absl::Duration lease;      // As granted.
  absl::Duration remaining;  // By PostgreSQL's clock when the row was read; less than `lease` in a replay.
  int32_t slot = 0;          // Which of the batch's slots it fills.
  int64_t grant = 0;         // The record of what its claim leased; 0 in a replay.
  bool repeatable = false;   // Its claim has a request id.
};

// One place that a poll offers.
struct ClaimSlot {
  int32_t worker = 0;    // Index into ClaimBatch::workers.
  int32_t request = -1;  // Index into ClaimBatch::requests, or -1.
  absl::Duration lease;
};

struct ClaimRange {
  int16_t priority = 0;
  Key after;  // Exclusive.
  Key upto;   // Inclusive; where the ranks differ, the whole last rank may be read.
};

inline constexpr int64_t kExceptLooked = 1000;

struct ClaimRequestKey {
  std::string request_id;
  absl::Duration keep;  // One lease.
};

// One statement's worth of claims on one queue.
struct ClaimBatch {
  int32_t queue = 0;
  int32_t replica = 0;
  std::vector<ClaimRange> ranges;  // Read in this order.
  std::vector<int64_t> revisit;    // Ids that an earlier claim read and did not get; read first.
  std::vector<ClaimSlot> slots;
  std::vector<std::string> workers;
  std::vector<ClaimRequestKey> requests;
  int64_t max_bytes = 3 << 20;
  // Leaves out jobs of these tenants ("": those without one). Of each stretch the first kExceptLooked ready jobs are
  // looked at, and nothing is said of how far it was read.
  std::vector<std::string> exclude_tenants;
  // Nobody else is expected to hold rows of the stretches: the claim then need not look for what it passed over. Only a
  // guess: where somebody does, the claim is made once more without it. Not with `revisit`.
  bool alone = false;
};

struct ClaimResult {
  std::vector<ClaimedJob> jobs;
  // For each range of the batch: how far it was read.
  struct RangeRead {
    bool exhausted = false;   // Nothing ready remains in the range, as of the statement's snapshot.
    std::optional<Key> last;  // The last key that was read.
  };
  std::vector<RangeRead> ranges;
  std::vector<int64_t> missed;             // Ready when read, but not got: look at them again.
  std::vector<int16_t> missed_priorities;  // Of each of those.
  bool paused = false;                     // The queue was paused: nothing was read.
  bool contended = false;                  // It was not alone.
  bool none_left_out = false;              // With exclude_tenants: nothing was ready, of whichever tenant.
  std::vector<int32_t> taken_requests;     // Indexes of requests that another claim had already served: replay them.
};

struct ExtendItem {
  LeaseToken token;
  std::optional<absl::Duration> duration;  // Default: as granted.
  std::optional<Progress> progress;
};

// What a statement could say about one token. kUnresolved items (locked by someone, or gone) go to ResolveTokens.
enum class TokenState {
  kCurrent,   // Valid, but its row was locked: try again.
  kWon,       // This call did it.
  kReplayed,  // An earlier call with this token and verb did it.
  kLeaseLost,
  kCancelled,
  kAlreadySettled,
  kJobNotFound,
  kUnresolved,
};

struct ExtendOutcome {
  TokenState state = TokenState::kUnresolved;
  absl::Time expires;
  absl::Duration remaining;
};

struct SettleOutcome {
  TokenState state = TokenState::kUnresolved;
  JobState job_state = JobState::kCompleted;
  std::optional<absl::Time> due;
  std::vector<JobId> follow_ups;
  absl::Status follow_up_status;
};

struct FollowUp {
  int32_t queue = 0;
  NewJob job;
};

struct CompleteItem {
  LeaseToken token;
  std::optional<Payload> result;
  std::vector<FollowUp> follow_ups;
};

struct FailItem {
  LeaseToken token;
  JobError error;
  bool non_retryable = false;
  std::optional<absl::Duration> retry_after;
  std::optional<absl::Duration> pause_for;  // Of its keys, or of `pause_key` if it is one of them.
  std::string pause_key;                    // Empty: all.
};

// Release and Snooze.
struct GiveBackItem {
  LeaseToken token;
  absl::Duration delay;
};

struct CancelOutcome {
  enum class State { kCancelled, kAlreadyEnded, kNotFound, kLocked } state = State::kLocked;
  JobState previous = JobState::kReady;
  std::string worker;  // Held it; empty if nobody did.
  int32_t number = 0;
};

struct RetryOutcome {
  absl::Status status;
  JobId id;
  GateNames blocked;  // What it waits for, if it is blocked now.
};

struct NamedClaimOutcome {
  std::optional<ClaimedJob> job;
  absl::Status refusal;  // LEASE_HELD, NOT_READY, ALREADY_SETTLED, JOB_NOT_FOUND; OK if claimed.
};

// A lease that ran out.
struct Reaped {
  int64_t id = 0;
  bool discarded = false;
  bool forgiven = false;                    // Ran out during an outage: burned no crash.
  std::optional<absl::Duration> remaining;  // Not reaped: it was extended and has so long left.
  bool gone = false;                        // No lease of this number any more.
  bool locked = false;                      // Look again soon.
  GateNames freed;                          // Where it held slots, if it was discarded.
};

// The lease a replica watches.
struct LeaseRef {
  int32_t queue = 0;
  int64_t id = 0;
  int32_t number = 0;
  int64_t grant = 0;  // The record of what its claim leased; 0: not known.
};

struct LeaseRemaining {
  LeaseRef ref;
  absl::Duration remaining;  // May be negative.
};

// What one claim leased, and still stands.
struct LeaseGrant {
  int64_t id = 0;
  std::vector<LeaseRemaining> leases;
};

// Counts of one queue.
struct QueueCounts {
  int64_t scheduled = 0, blocked = 0, ready = 0, leased = 0, suspended = 0;
  int64_t completed = 0, discarded = 0, cancelled = 0, expired = 0, enqueued = 0;
  void Add(const QueueCounts& delta) {
    scheduled += delta.scheduled, blocked += delta.blocked, ready += delta.ready, leased += delta.leased,
        suspended += delta.suspended, completed += delta.completed, discarded += delta.discarded,
        cancelled += delta.cancelled, expired += delta.expired, enqueued += delta.enqueued;
  }
};

struct QueueSettings {
  std::optional<int32_t> max_attempts;
  std::optional<int32_t> crash_budget;
  std::optional<Backoff> backoff;
  std::optional<int64_t> max_depth;
  std::optional<int64_t> max_tenant_depth;
  std::string description;
  bool fair_tenants = false;                      // Tenants take turns by weight.
  std::optional<absl::Duration> priority_ageing;  // A ready job gains one priority per such time.
  bool skip_retrying = false;  // A group passes over a job of it that waits for its retry; else that job holds it.
  std::optional<absl::Duration> start_within;  // Of jobs that come in without an expiry, from when they are due.
  std::string dead_letter_queue;               // What dies from then on is moved there. Empty: it stays.
  std::optional<int32_t> dead_letter_rate;     // Jobs a second. Absent: as fast as it goes.
};

struct Queue {
  int32_t id = 0;
  std::string name;
  QueueSettings settings;
  bool paused = false;
  bool gated = false;  // All its jobs pass a gate of its own: it has a limit, or tenants take turns.
  absl::Time created;
};

enum class NoticeType { kCancelled = 1, kLeaseLost = 2 };

struct Notice {
  int64_t id = 0;
  NoticeType type = NoticeType::kCancelled;
  std::string worker;
  JobId job;
  int32_t number = 0;
  std::string reason;
};

// What became visible since the snapshot before.
struct EventBatch {
  std::string snapshot;  // Pass it to the next read.
  std::vector<ReadyRange> ready;
  std::map<int32_t, QueueCounts> deltas;  // By queue.
  std::vector<Notice> notices;
  std::vector<int32_t> changed_queues;     // Settings, paused.
  GatesByQueue admit;                      // To be looked at: applications' transactions have touched them.
  std::optional<absl::Time> earliest_due;  // Of the jobs that were scheduled.
  absl::Time now;
};

struct ListFilter {
  std::optional<int32_t> queue;
  std::vector<std::string> kinds;
  std::vector<JobState> states;  // Not empty.
  Headers headers;
  std::string holder;
  std::optional<absl::Time> created_after, created_before, updated_after, updated_before, due_after, due_before;
  int32_t page_size = 50;
  std::string page_token;  // The store's own; empty at first.
  bool include_payloads = false;
};

struct ListPage {
  std::vector<Job> jobs;
  std::string next_page_token;
};

struct WorkerSeen {
  std::string worker;
  std::vector<std::string> queues;
};

struct WorkerRow {
  std::string worker;
  absl::Time last_claim;
  int32_t leased = 0;
  std::vector<std::string> queues;
};

struct ReplicaRow {
  int64_t id = 0;
  std::string name;
  std::string version;
  absl::Time started;
  absl::Time heartbeat;
  bool draining = false;
  bool alive = true;
  std::vector<std::string> leads;
};

struct BackgroundRow {
  std::string name;
  std::string shards;  // "0-511, 513-1023"; empty if the worker has one leader.
  std::string holder;
  int64_t term = 0;
  std::optional<absl::Time> since;
  std::optional<absl::Time> last_success;
  std::string last_error;
  int64_t runs = 0;
  int64_t restarts = 0;
};

// Names the leader's term; a led worker passes it with every write, and the write is refused when the term is over.
struct Fence {
  std::string worker;
  int64_t term = 0;
};

struct PromoteResult {
  int32_t promoted = 0;
  std::vector<ReadyRange> ready;
  std::optional<absl::Duration> next_due;  // From now; absent if nothing is scheduled.
  bool more = false;                       // The limit was reached: call again at once.
  GatesByQueue blocked;                    // What others of them wait for.
  absl::Time now;                          // The transaction's now().
  // Pass it as `after` next time: no due row that this statement could see is left before it. The due time of the last
  // row read if `more`, else `now`; never beyond a row that was passed over because somebody had it locked.
  absl::Time cursor = absl::InfinitePast();
};

// Leases of replicas that are gone.
struct Orphans {
  std::map<int32_t, std::vector<LeaseRef>> due;  // By queue: those that have run out.
  std::vector<int64_t> over;                     // Grants none of whose leases stands any more.
  std::optional<absl::Duration> next_expiry;     // Of the others.
  absl::Time as_of;                              // When this was so.
  int64_t last = 0;                              // The last grant that was read.
  bool more = false;                             // There may be further ones after it.
};

struct RecoverResult {
  int32_t recovered = 0;
  int32_t discarded = 0;
  std::vector<ReadyRange> ready;
  std::optional<absl::Duration> next_expiry;  // Of a lease that a vanished replica granted.
  GatesByQueue freed;
};

// Somebody whose snapshot keeps vacuum from removing what died since.
struct VacuumHolder {
  std::string kind;                   // "transaction", "prepared transaction", "replication slot".
  std::optional<absl::Duration> age;  // Of the transaction; a slot has none.
  int64_t transactions = 0;           // How many have begun since.
  int32_t pid = 0;                    // 0: none.
  std::string name;                   // Application, global id, slot.
  std::string owner;
  std::string state;
  std::optional<absl::Time> query_start;
};

struct TableRows {
  std::string name;
  int64_t dead = 0;
  int64_t live = 0;
};

struct IndexSize {
  std::string name;
  std::string table;
  int64_t bytes = 0;
  int64_t needed = 0;  // What its rows would take, estimated.
  // The part of it that is surplus, 0 to 1.
  double surplus() const {
    return bytes > needed ? static_cast<double>(bytes - needed) / static_cast<double>(bytes) : 0;
  }
};

struct DatabaseInfo {
  std::string version;
  int version_number = 0;
  int required_schema = 0;  // The least schema version that this daemon works with.
  std::string role;
  bool pooled = false;
  int schema_version = 0;
  std::vector<VacuumHolder> holders;  // The oldest first.
  std::vector<TableRows> tables;      // The hot ones.
  std::vector<IndexSize> indexes;     // Theirs.
  std::vector<std::string> leftover_indexes;
  // Age of the oldest transaction, prepared ones too.
  std::optional<absl::Duration> oldest_transaction() const { return holders.empty() ? std::nullopt : holders[0].age; }
  const TableRows& jobs() const;    // Those of tenure.job.
  absl::Duration clock_difference;  // Database minus daemon.
  bool synchronous_commit = true;
};

inline const TableRows& DatabaseInfo::jobs() const {
  static const TableRows none;
  for (const TableRows& table : tables) {
    if (table.name == "job") return table;
  }
  return none;
}

}  // namespace tenure::store
