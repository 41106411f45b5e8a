// The engine: what the RPCs ask for, turned into few, large transactions. Policy lives here (batching, long polls,
// cursors, waiting, shedding, watching leases); SQL lives in the store, protobuf in rpc/.
//
// Layer: engine (knows store's interface, not its implementation). Thread-safe. Every call is asynchronous: it returns
// at once and runs its callback exactly once, on a thread of the engine's pool or on the calling thread; callbacks must
// not block.
//
// How a call flows: queue names are resolved (QueueDirectory) -> items gather per (queue, verb) while that lane's batch
// is in flight (BatchLane) -> one store call -> what was locked goes to the slow lane (retried apart until the caller's
// deadline), what is unresolved is looked up by a second statement -> per-item results. Claims go through the ClaimDesk
// (parked polls, cursors).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/engine/admission_engine.h"
#include "server/engine/move_engine.h"
#include "server/engine/schedule_engine.h"
#include "server/engine/target_engine.h"
#include "server/store/store.h"
#include "server/store/types.h"

namespace tenure::engine {

template <typename T>
using Callback = std::function<void(absl::StatusOr<T>)>;

struct Options {
  std::string replica_name;  // host-pid-random.
  std::string version;
  int database_threads = 4;             // Transactions under way at once; each has a connection.
  bool create_queues = true;            // Enqueue makes queues that do not exist.
  int max_batch_items = 1000;           // Items per coalesced statement.
  int64_t max_batch_bytes = 4 << 20;    // Payload bytes per coalesced statement.
  int64_t max_waiting_items = 200'000;  // Per verb; beyond it RESOURCE_EXHAUSTED / OVERLOADED.
  int max_polls = 20'000;               // Parked long polls in all; beyond it RESOURCE_EXHAUSTED / TOO_MANY_POLLS.
  int max_polls_per_worker = 64;
  absl::Duration event_interval = absl::Milliseconds(50);
  bool notify =
      false;  // Tell the other replicas at once what became ready, so that they read events before their time.
  absl::Duration heartbeat_interval = absl::Seconds(3);
  absl::Duration replica_lease = absl::Seconds(10);
  std::vector<std::string> background_workers;  // Those that this version knows, whether this replica runs them or not.
};

// Until when the caller waits; the engine answers a little before.
using Deadline = Clock::TimePoint;

struct EnqueueItem {
  std::string queue;
  store::NewJob job;
};

struct QueueShare {
  std::string queue;
  int32_t weight = 1;
};

struct SlotReservation {
  int16_t min_priority = 0;
  int32_t slots = 0;
};

struct ClaimCall {
  std::string worker;
  std::vector<QueueShare> queues;
  bool weighted = false;  // Else strict order.
  int32_t max_jobs = 1;
  absl::Duration lease = absl::Seconds(30);
  absl::Duration wait;
  std::string request_id;  // Empty: none.
  std::vector<SlotReservation> reservations;
  std::vector<std::string> exclude_tenants;  // "": jobs without a tenant.
  int64_t max_bytes = 3 << 20;
};

struct ClaimAnswer {
  std::vector<store::ClaimedJob> jobs;
  bool replayed = false;
};

struct NamedClaimCall {
  std::string worker;
  std::vector<store::JobId> ids;
  absl::Duration lease = absl::Seconds(30);
  std::string request_id;
  int64_t max_bytes = 3 << 20;  // Of the answer, shared out over the queues.
};

struct CompleteItem {
  store::LeaseToken token;
  std::optional<store::Payload> result;
  std::vector<EnqueueItem> follow_ups;
};

// One item's answer: `status` carries the reason (LEASE_LOST, JOB_CANCELLED, ALREADY_SETTLED, JOB_NOT_FOUND,
// JOB_LOCKED).
struct SettleAnswer {
  absl::Status status;
  store::JobState state = store::JobState::kCompleted;
  std::optional<absl::Time> due;
  std::vector<store::JobId> follow_ups;
  bool replayed = false;
};

struct ExtendAnswer {
  absl::Status status;
  absl::Time expires;
  absl::Duration remaining;
};

struct CancelAnswer {
  absl::Status status;  // JOB_NOT_FOUND, ALREADY_SETTLED.
  store::JobId id;      // The job that was cancelled: the one asked for, or where that one was moved.
  store::JobState previous = store::JobState::kReady;
};

struct QueueInfo {
  store::Queue queue;
  store::QueueCounts counts;
  std::optional<absl::Duration> oldest_ready;
};

struct NoticesAnswer {
  std::vector<store::Notice> notices;
  bool draining = false;
};

// How the engine fares, for /readyz.
struct Health {
  bool database_ok = false;
  std::string database_error;  // Why not; empty while it connects for the first time.
  std::string schema_error;    // Not empty: the database answers, but its schema is not this daemon's.
  bool draining = false;
  absl::Duration event_lag;  // Since events were last read.
};

// A long poll under way. Cancel it when its caller has gone: a parked one leaves at once; one whose claim is in flight
// gives back what it gets, unless it has a request id. Destroying the handle does nothing.
class PollHandle {
 public:
  virtual ~PollHandle() = default;
  virtual void Cancel() = 0;
};

class Engine : public ScheduleEngine, public TargetEngine, public MoveEngine, public AdmissionEngine {
 public:
  // Registers the replica and begins to read events; retries for ever while the database is away (calls then answer
  // UNAVAILABLE). Returns at once.
  virtual void Start() = 0;
  // Parked polls are answered (empty; notices with draining), new claims get UNAVAILABLE / DRAINING, the rest goes on.
  virtual void Drain() = 0;
  // Finishes what is in flight or waiting for its batch, up to `deadline`, then answers the rest UNAVAILABLE; releases
  // the replica's row. No call may follow.
  virtual void Stop(Deadline deadline) = 0;

  virtual void Enqueue(std::vector<EnqueueItem> items, Deadline deadline,
                       Callback<std::vector<store::EnqueueOutcome>> done) = 0;
  // Of a job that was moved all calls, but for GetRecord, mean the job that it became (Store::WhereNow).

  // `wait` zero: at once. Otherwise answers when the job has ended, or with the job as it stands when `wait` is over.
  virtual std::shared_ptr<PollHandle> Get(const store::JobId& id, absl::Duration wait, Deadline deadline,
                                          Callback<store::Job> done) = 0;
  // The record of this very id, also if the job was moved.
  virtual void GetRecord(const store::JobId& id, Callback<store::Job> done) = 0;
  // `queue` (if not empty) overrides filter.queue; QUEUE_NOT_FOUND if it does not exist.
  virtual void List(std::string queue, store::ListFilter filter, Callback<store::ListPage> done) = 0;
  virtual void Cancel(std::vector<store::JobId> ids, std::string reason, Deadline deadline,
                      Callback<std::vector<CancelAnswer>> done) = 0;
  virtual void Retry(std::vector<store::JobId> ids, std::string request_id,
                     Callback<std::vector<store::RetryOutcome>> done) = 0;

  virtual std::shared_ptr<PollHandle> Claim(ClaimCall call, Deadline deadline, Callback<ClaimAnswer> done) = 0;
  virtual void ClaimNamed(NamedClaimCall call, Deadline deadline,
                          Callback<std::vector<store::NamedClaimOutcome>> done) = 0;
  virtual void Extend(std::vector<store::ExtendItem> items, Deadline deadline,
                      Callback<std::vector<ExtendAnswer>> done) = 0;
  virtual void Complete(std::vector<CompleteItem> items, Deadline deadline,
                        Callback<std::vector<SettleAnswer>> done) = 0;
  virtual void Fail(std::vector<store::FailItem> items, Deadline deadline,
                    Callback<std::vector<SettleAnswer>> done) = 0;
  virtual void Release(std::vector<store::GiveBackItem> items, Deadline deadline,
                       Callback<std::vector<SettleAnswer>> done) = 0;
  virtual void Snooze(std::vector<store::GiveBackItem> items, Deadline deadline,
                      Callback<std::vector<SettleAnswer>> done) = 0;
  // Notices for `worker` that are not in `seen`, at most a minute old.
  virtual std::shared_ptr<PollHandle> AwaitNotices(std::string worker, std::vector<int64_t> seen, absl::Duration wait,
                                                   Deadline deadline, Callback<NoticesAnswer> done) = 0;
  // Claims that a caller will not receive after all: given back untouched (unless the call had a request id).
  virtual void Undeliverable(ClaimAnswer answer) = 0;

  virtual void CreateQueue(std::string name, store::QueueSettings settings, bool paused, Callback<QueueInfo> done) = 0;
  virtual void UpdateQueue(std::string name, store::QueueSettings settings, std::set<std::string> fields,
                           Callback<QueueInfo> done) = 0;
  virtual void SetPaused(std::string name, bool paused, Callback<QueueInfo> done) = 0;
  virtual void GetQueue(std::string name, Callback<QueueInfo> done) = 0;
  virtual void ListQueues(std::string after_name, std::string prefix, int limit,
                          Callback<std::vector<QueueInfo>> done) = 0;

  virtual void ListWorkers(std::string after, int limit, Callback<std::vector<store::WorkerRow>> done) = 0;
  virtual void ListReplicas(Callback<std::vector<store::ReplicaRow>> done) = 0;
  virtual void ListBackground(Callback<std::vector<store::BackgroundRow>> done) = 0;
  virtual void Inspect(Callback<store::DatabaseInfo> done) = 0;

  // The name of a queue whose id came with an answer of this engine; never blocks.
  virtual std::string QueueName(int32_t id) const = 0;
  virtual int32_t replica_id() const = 0;  // 0 until registered.
  virtual const Options& options() const = 0;
  virtual Health health() const = 0;
  // Counts of all queues as this replica knows them, for metrics.
  virtual std::vector<QueueInfo> Snapshot() const = 0;

  // Told by background workers of this process, so that its polls need not wait for the events.
  virtual void NoteReady(std::vector<store::ReadyRange> ranges) = 0;
  // Called with the due time of jobs scheduled here or elsewhere (from now), for the promoter. Set before Start.
  virtual void OnScheduled(std::function<void(absl::Duration from_now)> listener) = 0;
};

std::unique_ptr<Engine> MakeEngine(store::Store& store, Clock& clock, Metrics& metrics, Options options);

}  // namespace tenure::engine
