// Jobs, queues and what producers ask for, as plain C++ structs. Public header of tenure::client; no gRPC or protobuf
// types. Thread-safety: values. Durations are std::chrono; a time that is not set is an empty optional. Where a comment
// says "default", that is what the daemon applies when the field is left as it is here.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenure::client {

using Duration = std::chrono::nanoseconds;
using Time = std::chrono::system_clock::time_point;        // Wall clock: the database's.
using SteadyTime = std::chrono::steady_clock::time_point;  // This process's monotonic clock.
using Headers = std::map<std::string, std::string>;

// Where a job stands. The first five are live; the last four are final and never change.
enum class JobState {
  kUnknown = 0,    // A state that this library is too old to know.
  kScheduled = 1,  // Not due yet: a delay, a backoff or a snooze.
  kBlocked = 2,    // Due, but not admitted yet.
  kReady = 3,      // Claimable now.
  kLeased = 4,     // Held by a worker.
  kSuspended = 5,  // Waits for a time or an event without a lease.
  kCompleted = 6,
  kDiscarded = 7,  // A budget was spent or a worker discarded it: a dead letter.
  kCancelled = 8,
  kExpired = 9,  // It did not start before its expire time.
};
constexpr bool IsFinal(JobState state) { return state >= JobState::kCompleted; }
// "READY", "LEASED", ...
std::string_view ToString(JobState state);

// Opaque bytes with a media type. At most 1 MiB for a job's payload or result.
struct Payload {
  std::string data;
  std::string content_type;  // Default: "application/octet-stream". At most 255 bytes.

  static Payload Bytes(std::string bytes) { return {std::move(bytes), "application/octet-stream"}; }
  static Payload Json(std::string json) { return {std::move(json), "application/json"}; }
  static Payload Text(std::string text) { return {std::move(text), "text/plain"}; }
  friend bool operator==(const Payload&, const Payload&) = default;
};

// Wait after the n-th failure: initial * multiplier^(n - 1), plus up to 10 % at random, at most max.
struct Backoff {
  Duration initial = std::chrono::seconds(1);  // From 1 ms to 24 h.
  double multiplier = 2;                       // From 1 to 100.
  Duration max = std::chrono::hours(1);        // From `initial` to 30 days.
};

// An error that a worker reported. Text that is too long is cut and invalid UTF-8 is replaced, never refused.
struct JobError {
  std::string message;  // At most 64 KiB.
  std::string type;     // A class or code, for grouping. At most 255 bytes.
  std::string detail;   // A stack trace, say. At most 64 KiB.
  int attempt = 0;      // Set by the daemon.
  std::optional<Time> record_time;
};

// Who holds a job.
struct LeaseInfo {
  std::string worker_id;
  std::optional<Time> expire_time;
  int64_t token_number = 0;
  std::optional<Time> grant_time;
};

// How far a job is.
struct Progress {
  double fraction = 0;  // From 0 to 1.
  std::string message;  // At most 1,024 bytes; cut.
};

// A job as the daemon knows it.
struct Job {
  std::string id;
  std::string queue;
  std::string kind;
  JobState state = JobState::kUnknown;
  Payload payload;
  Headers headers;
  int priority = 0;
  std::string tenant;
  int attempt = 0;   // Numbers the claims, from 1.
  int failures = 0;  // At max_attempts: a dead letter.
  int max_attempts = 0;
  int crashes = 0;  // Leases that ran out. At crash_budget: a dead letter.
  int crash_budget = 0;
  int releases = 0;
  int snoozes = 0;
  std::string effect_key;                     // Stable over attempts and retries: pass it to the outside world.
  std::vector<std::string> concurrency_keys;  // Sorted. Not of claimed jobs.
  std::string group_key;                      // Not of claimed jobs.
  std::string unique_key;                     // Not of claimed jobs.
  bool unique_by_kind = false;                // Its scope.
  std::string retry_of;
  std::string forwarded_to;  // Only from GetRecord: where this job is now, if it was moved.
  std::string idempotency_key;
  std::optional<Time> create_time;
  std::optional<Time> due_time;
  std::optional<Time> start_time;
  std::optional<Time> end_time;
  std::optional<Time> expire_time;
  std::optional<Time> update_time;
  std::optional<LeaseInfo> lease;  // Only while LEASED.
  std::optional<JobError> error;   // The last one.
  std::optional<Payload> result;   // Only when COMPLETED.
  std::optional<Progress> progress;
  std::optional<Backoff> backoff;  // Its own; absent where the queue's applies.
};

// One thing that holds a job up, or that nothing does; `reason` as the API's WaitReason without its prefix
// ("KEY_FULL").
struct WaitCause {
  std::string reason;
  std::string message;  // In words.
  std::string key;      // The concurrency key or the group.
  std::optional<Time> until;
  std::optional<int64_t> limit;
  std::vector<std::string> holder_job_ids;  // At most 10.
  std::string ahead_job_id;                 // The job of the group that comes first.
  int64_t position = 0;                     // In line, from 1; 0: does not apply.
  int64_t ready_jobs = 0;                   // Of a turn: ready jobs of the queue that go before it.
  int64_t tenants = 0;                      // Of a turn: tenants that wait for turns, its own among them.
};

struct Explanation {
  std::string job_id;  // The one asked for, or where that one was moved.
  std::string queue;
  JobState state = JobState::kUnknown;
  std::vector<WaitCause> causes;  // First things first; at least one.
};

// What a producer asks for. Only queue and kind are required.
// What an enqueue does when a job with its unique key counts already. But for kReject it answers with that job.
enum class OnConflict {
  kReturnExisting = 1,
  kReplace = 2,               // That job gets the new payload, content type and headers.
  kReschedule = 3,            // That job becomes due when the new one would have.
  kReplaceAndReschedule = 4,  // Both.
  kReject = 5,                // ALREADY_EXISTS, reason UNIQUE_CONFLICT.
};

// Of the jobs with the same key one counts at a time; the last one that was accepted holds the key until it ends.
struct Unique {
  std::string key;       // 1 to 255 bytes.
  bool by_kind = false;  // Only jobs of the same kind count; else all of the queue.
  std::vector<JobState>
      states;  // In which the holder counts. Default: all live ones; those not claimed if it is changed.
  std::optional<Duration> period;  // It counts for so long since its enqueue, also once ended. Not if it is changed.
  OnConflict on_conflict = OnConflict::kReturnExisting;
};

// Jobs that have to end before another starts: at most 100.
struct DependsOn {
  std::vector<std::string> job_ids;
  std::vector<int> items;           // Of the same call, by their index, below this one's own.
  bool all_ended = false;           // In whatever way; else all of them must complete.
  bool release_on_failure = false;  // One that did not complete releases the job; else it cancels it.
};

struct JobSpec {
  std::string queue;
  std::string kind;
  Payload payload;
  Headers headers;                                // At most 64 entries and 16 KiB.
  int priority = 0;                               // Higher first, -100 to 100.
  std::string tenant;                             // The fairness key, at most 255 bytes.
  std::optional<Time> due_time;                   // Default: at once. At most one of due_time and delay.
  std::optional<Duration> delay;                  // At most 10 years.
  std::optional<Time> expire_time;                // At most one of expire_time and ttl.
  std::optional<Duration> ttl;                    // Expires unless started by then. Default: never.
  std::optional<int> max_attempts;                // Default: the queue's, else 20.
  std::optional<int> crash_budget;                // Default: the queue's, else 5.
  std::optional<Backoff> backoff;                 // Default: the queue's.
  std::string idempotency_key;                    // Makes the enqueue safe to repeat. Default: none.
  std::optional<Duration> idempotency_retention;  // Default 24 h, from 1 s to 30 days.
  std::string effect_key;                         // Default: the job's id.
  // At most 4 keys of the queue, 1 to 255 bytes each: blocked as long as the limit of one of them is full.
  std::vector<std::string> concurrency_keys;
  std::string group_key;  // Strict order: one job of a group at a time, as they were accepted.
  std::optional<Unique> unique;
  std::optional<DependsOn> depends_on;
};

// An accepted job.
struct Enqueued {
  std::string job_id;
  bool duplicate = false;  // An earlier enqueue with the same idempotency key made it.
  bool existing = false;   // It held the unique key: no job was made.
};

// A job that a Cancel ended.
struct CancelledJob {
  std::string job_id;                            // The one asked for, or where that one was moved.
  JobState previous_state = JobState::kUnknown;  // CANCELLED if it already was.
};

// Filters of List; all that are set must hold.
struct JobFilter {
  std::string queue;  // Default: all.
  std::vector<std::string> kinds;
  std::vector<JobState> states;  // Default: all live states.
  Headers headers;               // Each pair must be among the job's headers.
  std::string holder;            // Held by this worker.
  std::optional<Time> created_after, created_before;
  std::optional<Time> updated_after, updated_before;
  std::optional<Time> due_after, due_before;
  bool include_payloads = false;
};

struct JobPage {
  std::vector<Job> jobs;        // May be short, even empty.
  std::string next_page_token;  // Only an empty token is the end.
};

// What a queue's owner decides.
struct QueueSettings {
  std::optional<int> max_attempts;
  std::optional<int> crash_budget;
  std::optional<Backoff> backoff;
  std::optional<int64_t> max_depth;          // Jobs that have not ended; beyond it enqueues are shed (QUEUE_FULL).
  std::optional<int64_t> max_tenant_depth;   // The same for each tenant (TENANT_FULL).
  std::optional<std::string> description;    // At most 1,024 bytes.
  std::optional<bool> groups_skip_retrying;  // Default false: a job that waits for a retry holds its group.
  std::optional<bool> fair_tenants;          // Default false. True: tenants take turns, by weight.
  std::optional<Duration> priority_ageing;   // From 1 s to 24 h: a ready job gains one priority per such time.
  std::optional<Duration> start_within;      // From due to first start, of jobs without an expiry; else they expire.
  std::optional<std::string> dead_letter_queue;    // Where what dies in it is moved. Default: it stays.
  std::optional<int> dead_letter_jobs_per_second;  // How many at most. Default: as fast as it goes.
};

// Counts at most 1 s behind; the totals count since the queue was made.
struct QueueStats {
  int64_t scheduled = 0, blocked = 0, ready = 0, leased = 0, suspended = 0;
  int64_t completed_total = 0, discarded_total = 0, cancelled_total = 0, expired_total = 0, enqueued_total = 0;
  std::optional<Duration> oldest_ready_age;
};

struct Queue {
  std::string name;
  QueueSettings settings;
  bool paused = false;
  std::optional<Time> create_time;
  QueueStats stats;
};

struct QueuePage {
  std::vector<Queue> queues;
  std::string next_page_token;
};

// A client process that claims.
struct Worker {
  std::string worker_id;
  std::optional<Time> last_claim_time;
  int leased_jobs = 0;
  std::vector<std::string> queues;
};

struct WorkerPage {
  std::vector<Worker> workers;
  std::string next_page_token;
};

// A daemon replica.
struct Server {
  int64_t replica_id = 0;
  std::string name;
  std::string version;
  std::optional<Time> start_time;
  std::optional<Time> heartbeat_time;
  bool draining = false;
  std::vector<std::string> leads;  // The background workers it leads.
};

enum class Severity { kUnknown = 0, kOk = 1, kWarning = 2, kError = 3 };

struct Finding {
  std::string check;
  Severity severity = Severity::kUnknown;
  std::string message;
  std::string advice;
};

struct ServerInfo {
  Server server;
  std::string postgres_version;
  int schema_version = 0;
  std::vector<Finding> findings;
};

// A supervised loop inside the daemon.
struct BackgroundWorker {
  std::string name;
  std::string leader;
  int64_t term = 0;
  std::optional<Time> leader_since;
  std::optional<Time> last_success_time;
  std::string last_error;
  int64_t runs = 0;
  int64_t restarts = 0;
};

}  // namespace tenure::client
