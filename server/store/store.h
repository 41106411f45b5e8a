// The store: jobs, leases and everything durable. One method is one transaction (or one read); it returns after COMMIT.
//
// Layer: store. store/postgres/ implements it; engine/ and background/ call it. Thread-safe: any thread may call any
// method; a call takes one connection from the pool for its duration and blocks the thread, so never call it from an
// RPC thread.
//
// Errors common to all methods: UNAVAILABLE / DATABASE_UNAVAILABLE (the database is away, or the commit is in doubt:
// repeat with the same key or token to find out), DEADLINE_EXCEEDED / DATABASE_TIMEOUT (the statement's own deadline;
// nothing was written). Serialization failures and deadlocks are retried inside and never returned.
//
// Batches: items are answered one by one, in the caller's order. Rows that somebody else has locked are never waited
// for: they come back kUnresolved / kLocked, so that one application's open transaction delays nobody but itself.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/admission.h"
#include "server/store/dependencies.h"
#include "server/store/moves.h"
#include "server/store/rewrites.h"
#include "server/store/schedules.h"
#include "server/store/shard_store.h"
#include "server/store/targets.h"
#include "server/store/types.h"
#include "server/store/vacuum.h"

namespace tenure::store {

struct EnqueueResult {
  std::vector<EnqueueOutcome> jobs;
  std::vector<ReadyRange> ready;
  std::optional<absl::Duration> earliest_due;  // From now, of those that were scheduled.
  uint64_t xid = 0;                            // The transaction that made them ready; 0: more than one.
  GateNames blocked;                           // What some of them wait for.
};

struct SettleResult {
  std::vector<SettleOutcome> items;
  std::vector<ReadyRange> ready;
  std::optional<absl::Duration> earliest_due;
  uint64_t xid = 0;      // As above.
  GateNames freed;       // Gates at which a slot has become free, or somebody new waits.
  GatesByQueue blocked;  // What follow-ups wait for.
};

struct CancelResult {
  std::vector<CancelOutcome> items;
  GateNames freed;
};

// What a batch of look-ups says about tokens that a first statement could not settle.
struct ResolvedToken {
  TokenState state = TokenState::kLeaseLost;
  JobState job_state = JobState::kCompleted;
  std::optional<absl::Time> due;
};

class Store : public ScheduleStore,
              public AdmissionStore,
              public DependencyStore,
              public TargetStore,
              public ShardStore,
              public MoveStore,
              public RewriteStore,
              public VacuumStore {
 public:
  // --- Queues -------------------------------------------------------------------------------------------------------

  // The queue's row; made with default settings if `create` and it does not exist. NOT_FOUND / QUEUE_NOT_FOUND
  // otherwise.
  virtual absl::StatusOr<Queue> EnsureQueue(std::string_view name, bool create) = 0;
  // ALREADY_EXISTS / QUEUE_EXISTS.
  virtual absl::StatusOr<Queue> CreateQueue(std::string_view name, const QueueSettings& settings, bool paused) = 0;
  // Sets the named fields (max_attempts, crash_budget, backoff, description).
  virtual absl::StatusOr<Queue> UpdateQueue(std::string_view name, const QueueSettings& settings,
                                            const std::set<std::string>& fields) = 0;
  // Returns once no claim that began before can still take a job.
  virtual absl::StatusOr<Queue> SetPaused(std::string_view name, bool paused) = 0;
  virtual absl::StatusOr<std::vector<Queue>> ListQueues(std::string_view after_name, std::string_view prefix,
                                                        int limit) = 0;
  // Those of `ids` that exist.
  virtual absl::StatusOr<std::vector<Queue>> LoadQueues(std::span<const int32_t> ids) = 0;

  // --- Producers ----------------------------------------------------------------------------------------------------

  // How many jobs of each of `tenants` have not ended, counted up to `stop`.
  virtual absl::StatusOr<std::map<std::string, int64_t>> TenantDepths(int32_t queue,
                                                                      std::span<const std::string> tenants,
                                                                      int64_t stop) = 0;
  // Which of `jobs` would make none, as things stand: a job has been accepted under their idempotency key, or somebody
  // holds their unique key.
  virtual absl::StatusOr<std::vector<bool>> MakeNone(int32_t queue, std::span<const NewJob* const> jobs) = 0;
  // Jobs without an idempotency key, all of one queue.
  virtual absl::StatusOr<EnqueueResult> Enqueue(int32_t queue, std::span<const NewJob> jobs) = 0;
  // Jobs with keys. A key that another transaction has written but not committed holds only its own item (split on
  // lock_timeout): that item's status is UNAVAILABLE / KEY_BUSY.
  virtual absl::StatusOr<EnqueueResult> EnqueueKeyed(int32_t queue, std::span<const NewJob> jobs) = 0;
  // Jobs with unique keys, with or without idempotency keys, in the order in which they count. Holders of keys are
  // changed as their policy says. KEY_BUSY as above, also where somebody holds the row of a job that is to be changed.
  virtual absl::StatusOr<EnqueueResult> EnqueueUnique(int32_t queue, std::span<const NewJob> jobs) = 0;
  // The record of this very id, also if the job was moved: `forwarded_to` says where it is now. NOT_FOUND /
  // JOB_NOT_FOUND.
  virtual absl::StatusOr<Job> Get(const JobId& id) = 0;
  // Those of `ids` that have ended (for callers that wait for the outcome).
  virtual absl::StatusOr<std::vector<JobId>> Ended(std::span<const JobId> ids) = 0;
  // The rule for ids of jobs that were moved: everywhere but in Get and Cancel such an id stands for the job that the
  // other became, over any number of moves. This answers the ids of those jobs, in order; an id that was not moved is
  // its own. Ask after the id was found to be live no more: only then nobody can move it between.
  virtual absl::StatusOr<std::vector<JobId>> WhereNow(std::span<const JobId> ids) = 0;
  virtual absl::StatusOr<ListPage> List(const ListFilter& filter) = 0;
  // Ends jobs under these very ids: see WhereNow for those that have ended.
  virtual absl::StatusOr<CancelResult> Cancel(int32_t queue, std::span<const JobId> ids, std::string_view reason) = 0;
  // `request_id` empty: none.
  virtual absl::StatusOr<RetryOutcome> Retry(const JobId& id, std::string_view request_id) = 0;

  // --- Workers ------------------------------------------------------------------------------------------------------

  virtual absl::StatusOr<ClaimResult> Claim(const ClaimBatch& batch) = 0;
  // Exactly these jobs, all of one queue. Beyond `max_bytes` of the answer, but for the first: REPLY_FULL.
  virtual absl::StatusOr<std::vector<NamedClaimOutcome>> ClaimNamed(int32_t queue, int32_t replica,
                                                                    std::string_view worker, absl::Duration lease,
                                                                    std::string_view request_id,
                                                                    std::span<const JobId> ids, int64_t max_bytes) = 0;
  // What an earlier claim with this request id was given and still holds; nullopt if there was none within its lease.
  virtual absl::StatusOr<std::optional<std::vector<ClaimedJob>>> FindClaim(std::string_view request_id) = 0;
  virtual absl::StatusOr<std::vector<ExtendOutcome>> Extend(int32_t queue, std::span<const ExtendItem> items) = 0;
  virtual absl::StatusOr<SettleResult> Complete(int32_t queue, std::span<const CompleteItem> items) = 0;
  virtual absl::StatusOr<SettleResult> Fail(int32_t queue, std::span<const FailItem> items) = 0;
  // `verb`: kRelease (delay 0: ready at once) or kSnooze.
  virtual absl::StatusOr<SettleResult> GiveBack(int32_t queue, Verb verb, std::span<const GiveBackItem> items) = 0;
  // The second statement for kUnresolved items, whose snapshot sees what the first one waited for or passed over: was
  // the token settled (by which verb), lost, or is its row merely locked (kCurrent)?
  virtual absl::StatusOr<std::vector<ResolvedToken>> ResolveTokens(int32_t queue, Verb verb,
                                                                   std::span<const LeaseToken> tokens) = 0;

  // --- Leases that run out ------------------------------------------------------------------------------------------

  // Ends those of `leases` (one queue) that have run out: back to ready, or to the dead letters at the crash budget.
  // `as_of`: only those whose end lies before this time of the database. A caller that passes the time of its last word
  // from the database cannot, with a statement that was held up on its way, end what ran out while nobody could extend.
  virtual absl::StatusOr<std::vector<Reaped>> Reap(int32_t queue, std::span<const LeaseRef> leases,
                                                   std::vector<ReadyRange>* ready,
                                                   absl::Time as_of = absl::InfiniteFuture()) = 0;
  // What this replica's claims leased, but for the grants in `known`: the net under its timers.
  virtual absl::StatusOr<std::vector<LeaseGrant>> ListLeases(int32_t replica, std::span<const int64_t> known) = 0;
  // Those of `leases` (one queue) that stand no more: settled, cancelled or ended by whomever.
  virtual absl::StatusOr<std::vector<LeaseRef>> GoneLeases(int32_t queue, std::span<const LeaseRef> leases) = 0;
  // Forgets grants none of whose leases stands any more, once no repeat of their claims can come. Idempotent.
  virtual absl::Status DropGrants(std::span<const int64_t> grants) = 0;
  // What replicas that are gone leased of the queues in the fence's shards, a page of their grants after `after`
  // (0: from the beginning). Writes nothing. Empty while no replica has sent a heartbeat lately: then they were all cut
  // off, and have not written the outage down yet.
  virtual absl::StatusOr<Orphans> ListOrphans(const ShardFence& fence, int64_t after) = 0;
  // Ends those of `leases` (one queue, of ListOrphans) that had run out before `as_of`, in one transaction. Fenced by
  // the queue's shard: nothing is written, and nothing answered, once it is not held any more.
  virtual absl::StatusOr<RecoverResult> Recover(const ShardFence& fence, int32_t queue,
                                                std::span<const LeaseRef> leases, absl::Time as_of) = 0;

  // --- Events -------------------------------------------------------------------------------------------------------

  // Where a replica starts: the folded counts and the snapshot they hold for. The ready jobs that exist then are found
  // by claims from kLowestKey.
  struct Start {
    std::string snapshot;
    std::map<int32_t, QueueCounts> counts;
    std::vector<std::pair<int32_t, int16_t>> ready;  // (queue, priority) that have ready jobs.
  };
  virtual absl::StatusOr<Start> ReadStart() = 0;
  // OUT_OF_RANGE if events since `snapshot` have been rotated away: begin anew with ReadStart.
  virtual absl::StatusOr<EventBatch> ReadEvents(std::string_view snapshot) = 0;
  // Age of the oldest ready job at or after each range's low key; absent where there is none.
  virtual absl::StatusOr<std::vector<std::optional<absl::Duration>>> OldestReady(std::span<const ReadyRange> from) = 0;

  // --- Notifications, a short cut for what events tell anyway -----------------------------------------------------

  // Tells the replicas that listen that something has become ready.
  virtual absl::Status NotifyReady(int32_t replica) = 0;
  // Waits up to `timeout` for another replica's NotifyReady; true if one came. From one thread only, which it gives a
  // connection of its own. FAILED_PRECONDITION / NOTIFY_UNAVAILABLE behind a pooler: notifications do not pass one.
  virtual absl::StatusOr<bool> AwaitReady(int32_t replica, absl::Duration timeout) = 0;

  // --- Replicas and leaders -----------------------------------------------------------------------------------------

  virtual absl::StatusOr<int32_t> RegisterReplica(std::string_view name, std::string_view version) = 0;
  // NOT_FOUND / REPLICA_LOST if the row is gone or its lease ran out: register anew. Also records this process's
  // backends. `seen`: the database's time at the caller's last word from it; the heartbeat tells no more than that the
  // replica was in touch then, however late it arrives.
  virtual absl::Status Heartbeat(int32_t replica, bool draining, absl::Duration lease,
                                 absl::Time seen = absl::InfiniteFuture()) = 0;
  virtual absl::Status UnregisterReplica(int32_t replica) = 0;
  virtual absl::StatusOr<std::vector<ReplicaRow>> ListReplicas() = 0;
  // Terminates the database sessions of replicas whose lease ran out, then removes those without leases. Fenced by
  // shard 0.
  virtual absl::StatusOr<int> EvictReplicas(const ShardFence& fence) = 0;
  // The database could not be reached from `began` until now: leases that ran out meanwhile are forgiven.
  virtual absl::Status RecordOutage(absl::Duration length) = 0;

  // Takes or renews the leader lease of a background worker. nullopt: another holds it.
  virtual absl::StatusOr<std::optional<Fence>> AcquireLeader(std::string_view worker, int32_t replica,
                                                             absl::Duration lease) = 0;
  // FAILED_PRECONDITION / TERM_OVER if the term is over.
  virtual absl::Status RenewLeader(const Fence& fence, absl::Duration lease) = 0;
  virtual absl::Status ReleaseLeader(const Fence& fence) = 0;
  struct RunReport {
    bool ok = true;
    std::string error;
    bool restarted = false;
    int64_t runs = 1;  // How many runs it speaks of: the supervisor gathers those of a second.
  };
  virtual absl::Status ReportRun(std::string_view worker, const RunReport& report) = 0;
  // The same of a replica that takes part in a worker's shards.
  virtual absl::Status ReportShardRun(std::string_view worker, int32_t replica, const RunReport& report) = 0;
  // A worker by shard has a row for each replica that holds some, and one for those that nobody holds.
  virtual absl::StatusOr<std::vector<BackgroundRow>> ListBackground() = 0;

  // --- Upkeep (each led by a background worker, each fenced)
  // ----------------------------------------------------------

  // Makes ready what is scheduled and due at or after `after` (a due time; InfinitePast: from the beginning), at most
  // `limit` jobs, in the order of their due times.
  virtual absl::StatusOr<PromoteResult> Promote(const Fence& fence, absl::Time after, int limit) = 0;
  // Ends jobs whose expires has come and that have not started. Returns how many, at most `limit`; `freed` (if given):
  // the gates at which they stood or held a slot.
  virtual absl::StatusOr<int> ExpireJobs(const Fence& fence, int limit, GatesByQueue* freed = nullptr) = 0;
  // Makes the history, dead letter and payload partitions from today to `days_ahead` days from now. Not fenced:
  // idempotent.
  virtual absl::Status EnsurePartitions(int days_ahead) = 0;
  // Drops partitions past their age. Returns the names dropped. Fenced by shard 0.
  virtual absl::StatusOr<std::vector<std::string>> DropPartitions(const ShardFence& fence, int history_days,
                                                                  int dead_letter_days) = 0;
  // Removes idempotency keys past their time of the queues in the fence's shards, at most `limit`, and says how many;
  // with shard 0 also worker rows and outages past theirs.
  virtual absl::StatusOr<int> Prune(const ShardFence& fence, int limit) = 0;
  // Looks at the next unique keys after `cursor` (at most `limit`) of the queues in the fence's shards, forgets those
  // that nobody holds any more, and moves the cursor on; to the beginning (nullopt) after the last one. Says how many
  // it looked at.
  struct UniqueCursor {
    int32_t queue = 0;
    std::string name;
  };
  virtual absl::StatusOr<int> PruneUnique(const ShardFence& fence, std::optional<UniqueCursor>* cursor, int limit) = 0;
  // Adds the deltas of events since the last fold to the stored counts, and empties the oldest event slot when
  // possible.
  virtual absl::Status FoldStats(const Fence& fence) = 0;

  // --- For operators ------------------------------------------------------------------------------------------------

  virtual absl::Status RecordWorkers(std::span<const WorkerSeen> workers) = 0;
  virtual absl::StatusOr<std::vector<WorkerRow>> ListWorkers(std::string_view after, int limit) = 0;
  virtual absl::StatusOr<DatabaseInfo> Inspect() = 0;
  // OK if the database answers and its schema is new enough.
  virtual absl::Status Ping() = 0;
};

}  // namespace tenure::store
