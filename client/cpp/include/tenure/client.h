// Client: every call of the daemon's API, for producers, operators and people who write a worker loop of their own (a
// ready-made one is WorkerPool in worker_pool.h). Public header of tenure::client; needs neither gRPC nor protobuf
// headers.
//
// Thread-safety: a Client is a handle on a shared connection; copies are cheap and every method may be called from any
// thread at once. Calls block the calling thread until they are answered, their timeout is over, or their stop_token is
// triggered.
//
// Errors are absl::Status; errors.h reads the daemon's reason out of them. Calls that are safe to repeat are repeated
// by the client while they answer UNAVAILABLE and the like, with jittered exponential backoff, until their timeout: see
// the verdict at each method ("Repeated: ..."). LEASE_LOST, JOB_CANCELLED, ALREADY_SETTLED and JOB_NOT_FOUND are never
// repeated.
//
// Batch methods answer one result for each item, in order. A call that failed as a whole gives its status to every item
// it carried.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/errors.h"
#include "tenure/lease.h"
#include "tenure/limit.h"
#include "tenure/move.h"
#include "tenure/schedule.h"
#include "tenure/target.h"
#include "tenure/types.h"

namespace grpc {
class ChannelInterface;
}  // namespace grpc

namespace tenure::client {

namespace internal {
class Connection;
struct ClientAccess;
}  // namespace internal

struct TlsOptions {
  bool enabled = false;                // Default: plain text.
  std::string root_certificates_pem;   // Default: the system's.
  std::string client_certificate_pem;  // For mutual TLS, together with client_key_pem.
  std::string client_key_pem;
  std::string server_name;  // Expected in the daemon's certificate. Default: the target's host.
};

struct RetryOptions {
  Duration initial_backoff = std::chrono::milliseconds(100);
  Duration max_backoff = std::chrono::seconds(5);
  double multiplier = 2;
};

struct ClientOptions {
  // Where the daemon's replicas listen: "host:port", or a gRPC target such as "dns:///tenure.prod:8470" which stands
  // for all addresses that the name resolves to. Calls go round robin over all of them; those that failed last are
  // avoided for a while.
  std::vector<std::string> targets = {"127.0.0.1:8470"};
  TlsOptions tls;
  std::string bearer_token;                                // Sent with each call if not empty.
  Duration timeout = std::chrono::seconds(30);             // Of a call, repetitions included, unless it says otherwise.
  Duration keepalive_interval = std::chrono::seconds(30);  // At least 20 s, or the daemon hangs up.
  Duration keepalive_timeout = std::chrono::seconds(10);
  Duration connect_timeout = Duration::zero();  // How long Connect waits for a replica. Default: it does not.
  RetryOptions retry;
  // Gives every enqueued job without an idempotency key a random one (kept 10 min), so that enqueues are repeated, too.
  bool generate_idempotency_keys = false;
};

struct CallOptions {
  Duration timeout = Duration::zero();  // Default: ClientOptions::timeout, plus the call's own wait.
  std::stop_token stop;                 // Ends the call with CANCELLED.
};

class JobRange;

class Client {
 public:
  // Opens a connection. Effect: validates the options; connects in the background unless connect_timeout is set.
  // Errors: INVALID_ARGUMENT (no target, keepalive below 20 s, half a client certificate); UNAVAILABLE
  // (connect_timeout).
  static absl::StatusOr<Client> Connect(ClientOptions options = {});
  // The seam for tests: uses these channels (one per replica) instead of opening any. Targets and TLS are ignored.
  static Client FromChannels(std::vector<std::shared_ptr<grpc::ChannelInterface>> channels, ClientOptions options = {});

  // ---- Producers ----

  // Accepts one job. Once it returns OK the job is committed and never lost.
  // Repeated: with an idempotency key; without one only if the daemon refused before doing anything.
  // Errors: INVALID_ARGUMENT (names the field), ALREADY_EXISTS / IDEMPOTENCY_CONFLICT or UNIQUE_CONFLICT, NOT_FOUND /
  // QUEUE_NOT_FOUND, RESOURCE_EXHAUSTED / OVERLOADED, QUEUE_FULL or TENANT_FULL, UNAVAILABLE (it may or may not have
  // been accepted: use a key).
  absl::StatusOr<Enqueued> Enqueue(const JobSpec& spec, const CallOptions& options = {});
  // Accepts many; any number: they travel in calls of at most 10,000 jobs and 3 MiB. Each succeeds or fails on its own.
  // Repeated: each call of which all jobs have an idempotency key.
  std::vector<absl::StatusOr<Enqueued>> EnqueueBatch(const std::vector<JobSpec>& specs,
                                                     const CallOptions& options = {});

  // The id of a job that was moved stands for the job that it became, in all calls but GetRecord.

  // One job, live or ended. Repeated: yes. Errors: INVALID_ARGUMENT, NOT_FOUND / JOB_NOT_FOUND.
  absl::StatusOr<Job> Get(std::string_view id, const CallOptions& options = {});
  // The record of this very id, also if the job was moved: how it ended, and in `forwarded_to` where it is now. As Get
  // otherwise.
  absl::StatusOr<Job> GetRecord(std::string_view id, const CallOptions& options = {});
  // Waits until the job has ended and returns it. The wait is CallOptions::timeout (here the default is: without end).
  // Repeated: yes, so that a restart of the daemon does not end the wait. Errors: as Get; DEADLINE_EXCEEDED (still
  // live).
  absl::StatusOr<Job> WaitForOutcome(std::string_view id, const CallOptions& options = {});

  // One page of jobs; page_size 0 means 50, at most 1,000. Repeated: yes. Errors: INVALID_ARGUMENT.
  absl::StatusOr<JobPage> List(const JobFilter& filter, int page_size = 0, std::string_view page_token = {},
                               const CallOptions& options = {});
  // All of them, page by page as the loop goes on:  for (const auto& job : client.ListAll(filter)) if (job.ok()) ...
  JobRange ListAll(JobFilter filter, int page_size = 0, CallOptions options = {});

  // Ends a live job at once and for good. Repeated: yes. Errors: NOT_FOUND / JOB_NOT_FOUND, FAILED_PRECONDITION /
  // ALREADY_SETTLED.
  absl::StatusOr<CancelledJob> Cancel(std::string_view id, std::string_view why = {}, const CallOptions& options = {});
  std::vector<absl::StatusOr<CancelledJob>> CancelBatch(const std::vector<std::string>& ids, std::string_view why = {},
                                                        const CallOptions& options = {});

  // Why a job is not running. Repeated: yes. Errors: INVALID_ARGUMENT, NOT_FOUND / JOB_NOT_FOUND.
  absl::StatusOr<Explanation> Explain(std::string_view id, const CallOptions& options = {});

  // A scheduled job becomes due now; an ended one is made anew. Answers the id of the job that will run. Repeated: yes
  // (the client sends a request id; yours if not empty). Errors: NOT_FOUND / JOB_NOT_FOUND, FAILED_PRECONDITION /
  // NOT_RETRYABLE.
  absl::StatusOr<std::string> Retry(std::string_view id, const CallOptions& options = {});
  std::vector<absl::StatusOr<std::string>> RetryBatch(const std::vector<std::string>& ids,
                                                      std::string_view request_id = {},
                                                      const CallOptions& options = {});

  // ---- Queues ----

  // Errors: INVALID_ARGUMENT, ALREADY_EXISTS / QUEUE_EXISTS. Repeated: no (a repeat after a lost reply would answer
  // QUEUE_EXISTS).
  absl::StatusOr<Queue> CreateQueue(std::string_view name, const QueueSettings& settings = {}, bool paused = false,
                                    const CallOptions& options = {});
  // Changes the settings that are set; those named in `reset` ("max_attempts", "crash_budget", "backoff",
  // "description") go back to their defaults. Repeated: yes. Errors: INVALID_ARGUMENT, NOT_FOUND / QUEUE_NOT_FOUND.
  absl::StatusOr<Queue> UpdateQueue(std::string_view name, const QueueSettings& settings,
                                    const std::vector<std::string>& reset = {}, const CallOptions& options = {});
  // Repeated: yes, all of these. Errors: NOT_FOUND / QUEUE_NOT_FOUND.
  absl::StatusOr<Queue> GetQueue(std::string_view name, const CallOptions& options = {});
  absl::StatusOr<QueuePage> ListQueues(std::string_view name_prefix = {}, int page_size = 0,
                                       std::string_view page_token = {}, const CallOptions& options = {});
  absl::StatusOr<Queue> PauseQueue(std::string_view name, const CallOptions& options = {});
  absl::StatusOr<Queue> ResumeQueue(std::string_view name, const CallOptions& options = {});

  // ---- Limits of concurrency keys and queues ----

  // Sets a limit as a whole; holds for every job that is admitted afterwards, on all replicas. `key` is empty for
  // kQueue. Repeated: yes. Errors: INVALID_ARGUMENT, NOT_FOUND / QUEUE_NOT_FOUND, FAILED_PRECONDITION /
  // TOO_MANY_LIMITS.
  absl::StatusOr<Limit> SetLimit(std::string_view queue, LimitScope scope, std::string_view key, const LimitSpec& spec,
                                 const CallOptions& options = {});
  // With how the key or queue stands. Repeated: yes. Errors: NOT_FOUND / QUEUE_NOT_FOUND or LIMIT_NOT_FOUND.
  absl::StatusOr<Limit> GetLimit(std::string_view queue, LimitScope scope, std::string_view key,
                                 const CallOptions& options = {});
  // A page of a queue's limits; page_size 0 means 100. Repeated: yes. Errors: NOT_FOUND / QUEUE_NOT_FOUND.
  absl::StatusOr<LimitPage> ListLimits(std::string_view queue, int page_size = 0, std::string_view page_token = {},
                                       const CallOptions& options = {});
  // Repeated: no (a repeat after a lost reply would answer LIMIT_NOT_FOUND). Errors: as GetLimit.
  absl::Status DeleteLimit(std::string_view queue, LimitScope scope, std::string_view key,
                           const CallOptions& options = {});

  // ---- Schedules: jobs made again and again ----

  // Errors: INVALID_ARGUMENT, ALREADY_EXISTS / SCHEDULE_EXISTS. Repeated: no, as CreateQueue.
  absl::StatusOr<Schedule> CreateSchedule(std::string_view name, const ScheduleSpec& spec, bool paused = false,
                                          const CallOptions& options = {});
  // Changes what is set; fields named in `reset` ("time_zone", "overlap_policy", "catch_up", "description") go back to
  // their defaults. A new cron, interval or time zone begins now; otherwise the next slot stays. Repeated: yes. Errors,
  // here and below: INVALID_ARGUMENT, NOT_FOUND / SCHEDULE_NOT_FOUND.
  absl::StatusOr<Schedule> UpdateSchedule(std::string_view name, const ScheduleChange& change,
                                          const std::vector<std::string>& reset = {}, const CallOptions& options = {});
  // Repeated: yes, all four.
  absl::StatusOr<Schedule> GetSchedule(std::string_view name, const CallOptions& options = {});
  absl::StatusOr<SchedulePage> ListSchedules(std::string_view name_prefix = {}, int page_size = 0,
                                             std::string_view page_token = {}, const CallOptions& options = {});
  absl::StatusOr<Schedule> PauseSchedule(std::string_view name, const CallOptions& options = {});
  absl::StatusOr<Schedule> ResumeSchedule(std::string_view name, const CallOptions& options = {});
  // Jobs that it made stay. Repeated: no (a repeat after a lost reply would answer SCHEDULE_NOT_FOUND).
  absl::Status DeleteSchedule(std::string_view name, const CallOptions& options = {});
  // Makes a job now, apart from the slots, and answers its id. Repeated: yes (the client sends a request id; yours if
  // not empty).
  absl::StatusOr<std::string> TriggerSchedule(std::string_view name, std::string_view request_id = {},
                                              const CallOptions& options = {});

  // ---- Targets: where events of jobs, and copies of jobs, go ----

  // Errors: INVALID_ARGUMENT, ALREADY_EXISTS / TARGET_EXISTS, RESOURCE_EXHAUSTED / TOO_MANY_TARGETS. Repeated: no, as
  // CreateQueue.
  absl::StatusOr<Target> CreateTarget(std::string_view name, const TargetSpec& spec, bool paused = false,
                                      const CallOptions& options = {});
  // Changes what is set; fields named in `reset` ("queues", "events", "interval", "min_age_days", "secret", "region",
  // "endpoint", "description") go back to their defaults. Repeated: yes. Errors, here and below: INVALID_ARGUMENT,
  // NOT_FOUND / TARGET_NOT_FOUND.
  absl::StatusOr<Target> UpdateTarget(std::string_view name, const TargetChange& change,
                                      const std::vector<std::string>& reset = {}, const CallOptions& options = {});
  // Repeated: yes, all of these.
  absl::StatusOr<Target> GetTarget(std::string_view name, const CallOptions& options = {});
  absl::StatusOr<TargetPage> ListTargets(std::string_view name_prefix = {}, int page_size = 0,
                                         std::string_view page_token = {}, const CallOptions& options = {});
  absl::StatusOr<Target> PauseTarget(std::string_view name, const CallOptions& options = {});
  absl::StatusOr<Target> ResumeTarget(std::string_view name, const CallOptions& options = {});
  absl::StatusOr<DeadDeliveryPage> ListDeadDeliveries(std::string_view name, int page_size = 0,
                                                      std::string_view page_token = {},
                                                      const CallOptions& options = {});
  // Dead deliveries (no ids: all) are sent again. Answers how many; calls the daemon as often as that takes.
  absl::StatusOr<int64_t> RedriveDeliveries(std::string_view name, const std::vector<int64_t>& ids = {},
                                            const CallOptions& options = {});
  // With everything that it has not been sent. Repeated: no.
  absl::Status DeleteTarget(std::string_view name, const CallOptions& options = {});

  // ---- Moves: dead letters or a backlog to another queue ----

  // Starts a move. Repeated: yes (the client sends a request id; yours if not empty). Errors: INVALID_ARGUMENT,
  // NOT_FOUND / QUEUE_NOT_FOUND.
  absl::StatusOr<Move> CreateMove(const MoveSpec& spec, std::string_view request_id = {},
                                  const CallOptions& options = {});
  // Repeated: yes, all of these. Errors: NOT_FOUND / MOVE_NOT_FOUND; of the last three FAILED_PRECONDITION /
  // MOVE_ENDED, or MOVE_STANDING (the rule of a queue, which UpdateQueue steers).
  absl::StatusOr<Move> GetMove(std::string_view id, const CallOptions& options = {});
  absl::StatusOr<MovePage> ListMoves(int page_size = 0, std::string_view page_token = {},
                                     const CallOptions& options = {});
  absl::StatusOr<Move> PauseMove(std::string_view id, const CallOptions& options = {});
  absl::StatusOr<Move> ResumeMove(std::string_view id, const CallOptions& options = {});
  absl::StatusOr<Move> CancelMove(std::string_view id, const CallOptions& options = {});

  // ---- Workers: the primitives that WorkerPool is made of ----

  // Takes ready jobs under a lease; waits up to options.wait for the first. OK without jobs means that there were none.
  // Repeated: with a request_id (a lost reply is replayed). Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED /
  // TOO_MANY_POLLS, UNAVAILABLE / DRAINING or DATABASE_UNAVAILABLE.
  absl::StatusOr<ClaimResult> Claim(const ClaimOptions& claim, const CallOptions& options = {});
  // Takes exactly these jobs (at most 1,000); claim.queues and claim.wait are ignored. Errors of an item:
  // FAILED_PRECONDITION / LEASE_HELD (metadata holder, until), NOT_READY, ALREADY_SETTLED; NOT_FOUND / JOB_NOT_FOUND;
  // RESOURCE_EXHAUSTED / REPLY_FULL (beyond claim.max_bytes).
  // Repeated: with a request_id.
  std::vector<absl::StatusOr<ClaimedJob>> ClaimNamed(const std::vector<std::string>& job_ids, const ClaimOptions& claim,
                                                     const CallOptions& options = {});
  // Moves the end of leases to now + duration, never earlier. Repeated: yes.
  // Errors of an item: FAILED_PRECONDITION / LEASE_LOST, JOB_CANCELLED, ALREADY_SETTLED; NOT_FOUND / JOB_NOT_FOUND.
  absl::StatusOr<Extended> Extend(const ExtendItem& item, const CallOptions& options = {});
  std::vector<absl::StatusOr<Extended>> ExtendBatch(const std::vector<ExtendItem>& items,
                                                    const CallOptions& options = {});
  // The settles. All are repeated: the token makes them safe, the same verb again answers OK with `replayed`. Errors as
  // Extend.
  absl::StatusOr<Settled> Complete(const CompleteItem& item, const CallOptions& options = {});
  std::vector<absl::StatusOr<Settled>> CompleteBatch(const std::vector<CompleteItem>& items,
                                                     const CallOptions& options = {});
  absl::StatusOr<Settled> Fail(const FailItem& item, const CallOptions& options = {});
  std::vector<absl::StatusOr<Settled>> FailBatch(const std::vector<FailItem>& items, const CallOptions& options = {});
  absl::StatusOr<Settled> Release(const ReleaseItem& item, const CallOptions& options = {});
  std::vector<absl::StatusOr<Settled>> ReleaseBatch(const std::vector<ReleaseItem>& items,
                                                    const CallOptions& options = {});
  absl::StatusOr<Settled> Snooze(const SnoozeItem& item, const CallOptions& options = {});
  std::vector<absl::StatusOr<Settled>> SnoozeBatch(const std::vector<SnoozeItem>& items,
                                                   const CallOptions& options = {});
  // Waits for what a worker must know about the jobs it holds; empty when time ran out. Best effort: Extend is the
  // safety net. Repeated: yes.
  absl::StatusOr<std::vector<Notice>> AwaitNotices(const NoticesOptions& notices, const CallOptions& options = {});

  // ---- Operators ---- Repeated: yes, all of these.

  absl::StatusOr<WorkerPage> ListWorkers(int page_size = 0, std::string_view page_token = {},
                                         const CallOptions& options = {});
  absl::StatusOr<ServerInfo> GetServerInfo(const CallOptions& options = {});
  absl::StatusOr<std::vector<Server>> ListServers(const CallOptions& options = {});
  absl::StatusOr<std::vector<BackgroundWorker>> ListBackgroundWorkers(const CallOptions& options = {});

 private:
  friend struct internal::ClientAccess;
  explicit Client(std::shared_ptr<internal::Connection> connection) : connection_(std::move(connection)) {}

  std::shared_ptr<internal::Connection> connection_;
};

// The jobs of a List, fetched page by page. A single-pass range of absl::StatusOr<Job>; after an error it ends. Not
// thread-safe.
class JobRange {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = absl::StatusOr<Job>;
    using difference_type = std::ptrdiff_t;
    using pointer = const value_type*;
    using reference = const value_type&;

    reference operator*() const { return *range_->current_; }
    pointer operator->() const { return &*range_->current_; }
    Iterator& operator++() {
      range_->Advance();
      if (!range_->current_) range_ = nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    friend class JobRange;
    explicit Iterator(JobRange* range) : range_(range) {}
    JobRange* range_;
  };

  // Fetches the first page. Call it once.
  Iterator begin();
  Iterator end() { return Iterator(nullptr); }

 private:
  friend class Client;
  JobRange(Client client, JobFilter filter, int page_size, CallOptions options)
      : client_(std::move(client)), filter_(std::move(filter)), page_size_(page_size), options_(std::move(options)) {}
  void Advance();

  Client client_;
  JobFilter filter_;
  int page_size_;
  CallOptions options_;
  std::deque<Job> page_;
  std::string token_;
  bool done_ = false;
  std::optional<absl::StatusOr<Job>> current_;
};

}  // namespace tenure::client
