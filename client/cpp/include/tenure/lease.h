// What the lease protocol passes around: claims, leases, settles. Public header of tenure::client; plain structs for
// Client::Claim and its siblings, for people who write a worker loop of their own. Thread-safety: values.
//
// The protocol in three lines: Claim answers with jobs, each under a lease with a secret token; Extend moves a lease's
// end; a settle (Complete, Fail, Release, Snooze) with the token ends it. A stale token changes nothing and is answered
// LEASE_LOST.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tenure/types.h"

namespace tenure::client {

// One queue to claim from.
struct QueueSelection {
  std::string queue;
  int weight = 1;  // Its share under QueueOrder::kWeighted, from 1 to 1,000.
};

enum class QueueOrder {
  kStrict,    // The first queue with ready jobs goes first.
  kWeighted,  // Queues share the slots in proportion to their weights.
};

// Slots that only jobs of at least this priority may take.
struct SlotReservation {
  int min_priority = 0;  // From -100 to 100.
  int slots = 0;
};

struct ClaimOptions {
  std::string worker_id;               // Required: shown as the holder. See NewWorkerId().
  std::vector<QueueSelection> queues;  // 1 to 1,000. Unused by ClaimNamed.
  QueueOrder order = QueueOrder::kStrict;
  int max_jobs = 1;                           // At most 1,000.
  Duration lease = std::chrono::seconds(30);  // From 1 s to 12 h.
  Duration wait = Duration::zero();           // How long to wait for a job; at most 60 s.
  std::string request_id;                     // With one the claim is safe to repeat: see NewRequestId().
  std::vector<SlotReservation> reservations;  // At most 10.
  std::vector<std::string> exclude_tenants;   // At most 100; "": jobs without a tenant. Unused by ClaimNamed.
  int64_t max_bytes = 0;  // Of the answer's jobs with all they carry. Default 3 MiB, at most 64 MiB.
};

// A job under a lease.
struct ClaimedJob {
  Job job;
  std::string lease_token;    // Secret: whoever has it can settle the job.
  Duration lease_duration{};  // How long the lease lasts, counted from `sent`.
  SteadyTime sent;            // When the claim that was answered left this process.

  // Until when the lease is known to be held unless it is extended.
  SteadyTime lease_end() const { return sent + lease_duration; }
};

struct ClaimResult {
  std::vector<ClaimedJob> jobs;  // May be empty: nothing was ready within `wait`.
  bool replayed = false;         // The answer of an earlier call with the same request_id.
};

struct ExtendItem {
  std::string lease_token;
  std::optional<Duration> duration;  // Default: the claim's. From 1 s to 12 h.
  std::optional<Progress> progress;  // Default: unchanged.
};

struct Extended {
  std::optional<Time> expire_time;  // By the database's clock.
  Duration lease_duration{};        // Counted from `sent`.
  SteadyTime sent;
};

struct CompleteItem {
  std::string lease_token;
  std::optional<Payload> result;
  std::vector<JobSpec> follow_ups;  // Enqueued in the same transaction, only if this Complete wins. At most 100.
};

struct FailItem {
  std::string lease_token;
  JobError error;
  bool non_retryable = false;             // The job becomes a dead letter now.
  std::optional<Duration> retry_after;    // Instead of the backoff. At most 30 days.
  std::optional<Duration> pause_key_for;  // Nothing that names one of its keys starts for so long. At most 24 h.
  std::string pause_key;                  // Only this one of its keys. Default: all.
};

struct ReleaseItem {
  std::string lease_token;
  std::optional<Duration> delay;  // Ready again after so long. Default: at once. At most 12 h.
};

struct SnoozeItem {
  std::string lease_token;
  Duration delay{};  // Required; from 1 ms to 10 years.
};

// A settle that was accepted.
struct Settled {
  JobState state = JobState::kUnknown;     // Where the job stands now.
  std::optional<Time> due_time;            // When it will be due again, if it will.
  std::vector<std::string> follow_up_ids;  // Empty in a replayed answer.
  bool replayed = false;                   // An earlier call with this token and verb had settled it.
};

enum class NoticeType { kUnknown = 0, kCancelled = 1, kLeaseLost = 2, kDrain = 3 };

struct Notice {
  std::string id;
  NoticeType type = NoticeType::kUnknown;
  std::string job_id;        // Empty for kDrain.
  int64_t token_number = 0;  // Of the lease that ended.
  std::string reason;        // The caller's, for kCancelled.
};

struct NoticesOptions {
  std::string worker_id;              // Required: that of the claims.
  Duration wait = Duration::zero();   // At most 60 s.
  std::vector<std::string> seen_ids;  // Notices received in the last two minutes, not to be sent again.
};

// "host-pid-random": unique per call, for ClaimOptions::worker_id.
std::string NewWorkerId();
// 128 random bits in hex, for ClaimOptions::request_id.
std::string NewRequestId();

}  // namespace tenure::client
