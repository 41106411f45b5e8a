// The store on PostgreSQL. Each public method is one transaction over the statements of sql/, which carry the rules;
// here they are given their parameters and their rows are read. Layer: store/postgres, known to app alone. Thread-safe.
//
// The files: store_queues.cc, store_producers.cc, store_claims.cc, store_settles.cc, store_events.cc,
// store_replicas.cc, store_shards.cc, store_schedules.cc, store_targets.cc, store_outbox.cc, store_exports.cc,
// store_moves.cc, moved_jobs.cc, store_admission.cc, store_explain.cc, store_rewrites.cc, store_upkeep.cc,
// store_vacuum.cc, store_list.cc. What is common to all (connections, deadlines, retries inside, metrics) is Run in
// postgres_store.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/random/random.h"
#include "server/base/metrics.h"
#include "server/store/postgres/connection.h"
#include "server/store/postgres/pool.h"
#include "server/store/postgres/rewrites.h"
#include "server/store/postgres/rows.h"
#include "server/store/store.h"

namespace tenure::store::postgres {

struct PostgresOptions {
  std::string url;  // libpq URI or keywords.
  std::string application_name = "tenured";
  int connections = 8;
  absl::Duration statement_timeout = absl::Seconds(5);
  std::vector<Rewrite> rewrites{AllRewrites().begin(), AllRewrites().end()};  // Tests bring their own.
};

class PostgresStore : public Store {
 public:
  // Never fails when the database is away: the first call that needs it does.
  static std::unique_ptr<PostgresStore> Open(const PostgresOptions& options, Metrics& metrics);
  PostgresStore(const PostgresOptions& options, Metrics& metrics);

  absl::StatusOr<Queue> EnsureQueue(std::string_view name, bool create) override;
  absl::StatusOr<Queue> CreateQueue(std::string_view name, const QueueSettings& settings, bool paused) override;
  absl::StatusOr<Queue> UpdateQueue(std::string_view name, const QueueSettings& settings,
                                    const std::set<std::string>& fields) override;
  absl::StatusOr<Queue> SetPaused(std::string_view name, bool paused) override;
  absl::StatusOr<std::vector<Queue>> ListQueues(std::string_view after_name, std::string_view prefix,
                                                int limit) override;
  absl::StatusOr<std::vector<Queue>> LoadQueues(std::span<const int32_t> ids) override;

  absl::StatusOr<std::map<std::string, int64_t>> TenantDepths(int32_t queue, std::span<const std::string> tenants,
                                                              int64_t stop) override;
  absl::StatusOr<std::vector<bool>> MakeNone(int32_t queue, std::span<const NewJob* const> jobs) override;
  absl::StatusOr<EnqueueResult> Enqueue(int32_t queue, std::span<const NewJob> jobs) override;
  absl::StatusOr<EnqueueResult> EnqueueKeyed(int32_t queue, std::span<const NewJob> jobs) override;
  absl::StatusOr<EnqueueResult> EnqueueUnique(int32_t queue, std::span<const NewJob> jobs) override;
  absl::StatusOr<Job> Get(const JobId& id) override;
  absl::StatusOr<std::vector<JobId>> Ended(std::span<const JobId> ids) override;
  absl::StatusOr<std::vector<JobId>> WhereNow(std::span<const JobId> ids) override;
  absl::StatusOr<ListPage> List(const ListFilter& filter) override;
  absl::StatusOr<CancelResult> Cancel(int32_t queue, std::span<const JobId> ids, std::string_view reason) override;
  absl::StatusOr<RetryOutcome> Retry(const JobId& id, std::string_view request_id) override;

  absl::StatusOr<ClaimResult> Claim(const ClaimBatch& batch) override;
  absl::StatusOr<std::vector<NamedClaimOutcome>> ClaimNamed(int32_t queue, int32_t replica, std::string_view worker,
                                                            absl::Duration lease, std::string_view request_id,
                                                            std::span<const JobId> ids, int64_t max_bytes) override;
  absl::StatusOr<std::optional<std::vector<ClaimedJob>>> FindClaim(std::string_view request_id) override;
  absl::StatusOr<std::vector<ExtendOutcome>> Extend(int32_t queue, std::span<const ExtendItem> items) override;
  absl::StatusOr<SettleResult> Complete(int32_t queue, std::span<const CompleteItem> items) override;
  absl::StatusOr<SettleResult> Fail(int32_t queue, std::span<const FailItem> items) override;
  absl::StatusOr<SettleResult> GiveBack(int32_t queue, Verb verb, std::span<const GiveBackItem> items) override;
  absl::StatusOr<std::vector<ResolvedToken>> ResolveTokens(int32_t queue, Verb verb,
                                                           std::span<const LeaseToken> tokens) override;

  absl::StatusOr<std::vector<Reaped>> Reap(int32_t queue, std::span<const LeaseRef> leases,
                                           std::vector<ReadyRange>* ready,
                                           absl::Time as_of = absl::InfiniteFuture()) override;
  absl::StatusOr<std::vector<LeaseGrant>> ListLeases(int32_t replica, std::span<const int64_t> known) override;
  absl::StatusOr<std::vector<LeaseRef>> GoneLeases(int32_t queue, std::span<const LeaseRef> leases) override;
  absl::Status DropGrants(std::span<const int64_t> grants) override;
  absl::StatusOr<Orphans> ListOrphans(const ShardFence& fence, int64_t after) override;
  absl::StatusOr<RecoverResult> Recover(const ShardFence& fence, int32_t queue, std::span<const LeaseRef> leases,
                                        absl::Time as_of) override;

  absl::StatusOr<Start> ReadStart() override;
  absl::StatusOr<EventBatch> ReadEvents(std::string_view snapshot) override;
  absl::StatusOr<std::vector<std::optional<absl::Duration>>> OldestReady(std::span<const ReadyRange> from) override;

  absl::Status NotifyReady(int32_t replica) override;
  absl::StatusOr<bool> AwaitReady(int32_t replica, absl::Duration timeout) override;

  absl::StatusOr<int32_t> RegisterReplica(std::string_view name, std::string_view version) override;
  absl::Status Heartbeat(int32_t replica, bool draining, absl::Duration lease,
                         absl::Time seen = absl::InfiniteFuture()) override;
  absl::Status UnregisterReplica(int32_t replica) override;
  absl::StatusOr<std::vector<ReplicaRow>> ListReplicas() override;
  absl::StatusOr<int> EvictReplicas(const ShardFence& fence) override;
  absl::Status RecordOutage(absl::Duration length) override;

  absl::StatusOr<std::optional<Fence>> AcquireLeader(std::string_view worker, int32_t replica,
                                                     absl::Duration lease) override;
  absl::Status RenewLeader(const Fence& fence, absl::Duration lease) override;
  absl::Status ReleaseLeader(const Fence& fence) override;
  absl::Status ReportRun(std::string_view worker, const RunReport& report) override;
  absl::Status ReportShardRun(std::string_view worker, int32_t replica, const RunReport& report) override;
  absl::StatusOr<std::vector<BackgroundRow>> ListBackground() override;

  absl::StatusOr<std::vector<ShardLease>> LeaseShards(std::string_view worker, int32_t replica,
                                                      absl::Duration lease) override;
  absl::Status GiveUpShard(const ShardFence& fence, int32_t replica, int shard, std::string_view error) override;
  absl::Status LeaveShards(std::string_view worker, int32_t replica) override;

  absl::StatusOr<PromoteResult> Promote(const Fence& fence, absl::Time after, int limit) override;
  absl::StatusOr<int> ExpireJobs(const Fence& fence, int limit, GatesByQueue* freed = nullptr) override;
  absl::Status EnsurePartitions(int days_ahead) override;
  absl::StatusOr<std::vector<std::string>> DropPartitions(const ShardFence& fence, int history_days,
                                                          int dead_letter_days) override;
  absl::StatusOr<int> Prune(const ShardFence& fence, int limit) override;
  absl::StatusOr<int> PruneUnique(const ShardFence& fence, std::optional<UniqueCursor>* cursor, int limit) override;
  absl::Status FoldStats(const Fence& fence) override;

  absl::StatusOr<Schedule> CreateSchedule(std::string_view name, const ScheduleSettings& settings, int32_t queue,
                                          bool paused) override;
  absl::StatusOr<Schedule> UpdateSchedule(std::string_view name, const ScheduleSettings& settings, int32_t queue,
                                          const std::set<std::string>& fields) override;
  absl::StatusOr<Schedule> GetSchedule(std::string_view name) override;
  absl::StatusOr<std::vector<Schedule>> ListSchedules(std::string_view after_name, std::string_view prefix,
                                                      int limit) override;
  absl::Status DeleteSchedule(std::string_view name) override;
  absl::StatusOr<Schedule> SetSchedulePaused(std::string_view name, bool paused) override;
  absl::StatusOr<TriggeredJob> TriggerSchedule(std::string_view name, std::string_view request_id,
                                               std::vector<ReadyRange>* ready) override;
  absl::StatusOr<DueSchedules> ListDueSchedules(int limit, std::span<const int64_t> except) override;
  absl::StatusOr<FireResult> FireSchedules(const Fence& fence, std::span<const Firing> firings) override;
  absl::StatusOr<Move> CreateMove(const MoveSpec& spec, int32_t from, int32_t to, std::string_view request_id) override;
  absl::StatusOr<Move> GetMove(int64_t id) override;
  absl::StatusOr<std::vector<Move>> ListMoves(int64_t before, int limit) override;
  absl::StatusOr<Move> SetMoveState(int64_t id, MoveState state) override;
  absl::StatusOr<std::vector<int64_t>> ListRunningMoves() override;
  absl::StatusOr<MoveStep> StepMove(const Fence& fence, int64_t id, int limit) override;
  absl::Status NoteMoveError(const Fence& fence, int64_t id, std::string_view error) override;
  absl::StatusOr<int> PruneMoves(const ShardFence& fence, absl::Duration age, int limit) override;

  absl::StatusOr<std::vector<RewriteProgress>> ListRewrites() override;
  absl::StatusOr<RewriteStep> StepRewrite(const Fence& fence, std::string_view name, int limit) override;
  absl::Status NoteRewriteError(const Fence& fence, std::string_view name, std::string_view error) override;

  absl::StatusOr<int> PruneScheduleRuns(const Fence& fence, absl::Duration age, int limit) override;

  absl::StatusOr<Target> CreateTarget(std::string_view name, const TargetSettings& settings,
                                      std::span<const int32_t> queues, bool paused) override;
  absl::StatusOr<Target> UpdateTarget(std::string_view name, const TargetSettings& settings,
                                      std::span<const int32_t> queues, const std::set<std::string>& fields,
                                      const std::function<absl::Status(const TargetSettings&)>& check) override;
  absl::StatusOr<Target> GetTarget(std::string_view name) override;
  absl::StatusOr<std::vector<Target>> ListTargets(std::string_view after_name, std::string_view prefix,
                                                  int limit) override;
  absl::Status DeleteTarget(std::string_view name) override;
  absl::StatusOr<Target> SetTargetPaused(std::string_view name, bool paused) override;
  absl::StatusOr<std::vector<Delivery>> ListDeadDeliveries(std::string_view name, int64_t after, int limit) override;
  absl::StatusOr<Redriven> RedriveDeliveries(std::string_view name, std::span<const int64_t> ids) override;
  absl::StatusOr<std::vector<TargetWork>> LoadTargets(TargetPurpose purpose) override;
  absl::StatusOr<EventPage> TakePage(const Fence& fence, int64_t target, int limit, bool planned) override;
  absl::Status FinishPage(const Fence& fence, int64_t target, const EventPage& page, size_t events,
                          std::span<const Refused> refused, std::string_view error) override;
  absl::StatusOr<std::vector<Delivery>> DueDeliveries(int64_t target, int limit) override;
  absl::Status SettleDeliveries(const Fence& fence, int64_t target, std::span<const DeliveryOutcome> outcomes) override;
  absl::Status NoteTarget(const Fence& fence, int64_t target, std::string_view error,
                          std::optional<NextRun> next_run) override;
  absl::StatusOr<int> PruneDeliveries(const Fence& fence, int64_t target, absl::Duration age, int limit) override;
  absl::StatusOr<std::vector<DayPartition>> ListExports(int64_t target, int32_t min_age_days) override;
  absl::StatusOr<std::vector<Job>> ReadDay(const DayPartition& day, int64_t after, int limit) override;
  absl::StatusOr<LivePage> ReadLive(int32_t queue, int64_t after, int limit) override;
  absl::Status RecordExport(const Fence& fence, int64_t target, const DayPartition& day, int64_t rows) override;
  absl::StatusOr<bool> DropExported(const Fence& fence, const DayPartition& day) override;
  absl::Status RotateOutbox(const Fence& fence) override;
  absl::StatusOr<GraphResult> EnqueueGraph(std::span<const GraphJob> jobs) override;
  absl::StatusOr<ResolveResult> ResolveDependents(int32_t queue, std::span<const int64_t> ended) override;
  absl::StatusOr<DependencyPage> SweepDependencies(const DependencyPage::Cursor& after, int limit) override;

  absl::StatusOr<AdmitResult> Admit(int32_t queue, std::span<const std::string> names, int limit,
                                    int64_t fair_window) override;
  absl::StatusOr<Explanation> Explain(const JobId& id) override;
  absl::StatusOr<BlockedPage> BlockedNames(const BlockedPage::Cursor& after, int limit) override;
  absl::StatusOr<std::vector<int32_t>> Recalls(int limit) override;
  absl::StatusOr<RecallStep> Recall(int32_t queue, int limit) override;
  absl::StatusOr<std::vector<AdmissionCounts>> CountBlocked() override;
  absl::StatusOr<Limit> SetLimit(int32_t queue, LimitScope scope, std::string_view key,
                                 const LimitSettings& settings) override;
  absl::StatusOr<Limit> FindLimit(int32_t queue, LimitScope scope, std::string_view key) override;
  absl::StatusOr<std::vector<Limit>> ListLimits(int32_t queue, LimitScope after_scope, std::string_view after_key,
                                                int limit) override;
  absl::Status DeleteLimit(int32_t queue, LimitScope scope, std::string_view key) override;

  absl::Status RecordWorkers(std::span<const WorkerSeen> workers) override;
  absl::StatusOr<std::vector<WorkerRow>> ListWorkers(std::string_view after, int limit) override;
  absl::StatusOr<DatabaseInfo> Inspect() override;
  absl::Status RebuildIndex(const Fence& fence, std::string_view index, const IndexWorkLimits& limits,
                            const std::stop_token& stop) override;
  absl::Status DropLeftoverIndex(const Fence& fence, std::string_view index, const IndexWorkLimits& limits,
                                 const std::stop_token& stop) override;
  absl::Status Ping() override;

 private:
  // How long a batch waits for a key that somebody has written and not committed, before it is split.
  static constexpr absl::Duration kKeyWait = absl::Milliseconds(100);

  // Runs `body` in a transaction on a connection of the pool. Serialization failures and deadlocks run it again; a
  // missing partition is made and the body run again; a connection that turns out to be dead before anything was sent
  // is replaced. `name` labels the metrics.
  template <typename T>
  absl::StatusOr<T> Run(const char* name, Transaction::Limits limits,
                        std::function<absl::StatusOr<T>(Transaction&)> body);
  template <typename T>
  absl::StatusOr<T> Run(const char* name, std::function<absl::StatusOr<T>(Transaction&)> body) {
    return Run<T>(name, Transaction::Limits{options_.statement_timeout}, std::move(body));
  }
  // The loop of Run: `attempt` runs once per try.
  absl::Status RunLoop(const char* name, Transaction::Limits limits,
                       const std::function<absl::Status(Transaction&)>& attempt);
  // One statement that answers rows.
  absl::StatusOr<Result> RunOne(const char* name, std::string_view sql, const Params& params);

  absl::Status WorkOnIndex(const Fence& fence, std::string_view index, bool rebuild, const IndexWorkLimits& limits,
                           const std::stop_token& stop);
  // Writes a change of a worker's shards; false if what it was made from has changed meanwhile.
  absl::StatusOr<bool> ApplyShards(std::string_view worker, int32_t replica, absl::Duration lease,
                                   const ShardChange& change);
  // Fills in payloads that are kept apart: jobs[i]'s is in the partition days[i] (-1: it is in the row).
  // Fills in what claim.sql leaves out of jobs of one queue.
  absl::StatusOr<ClaimBatch> LeaveOut(const ClaimBatch& batch, int64_t* seen);
  absl::Status FetchDetails(int32_t queue, std::span<Job* const> jobs);
  absl::Status FetchPayloads(std::span<Job* const> jobs, std::span<const int32_t> days);
  std::vector<int64_t> Secrets(size_t n);
  // What a target is after it was changed; commits.
  absl::StatusOr<Target> FindTarget(Transaction& tx, std::string_view name);
  // The caller has looked whether its term holds. Takes a day's partition out and drops it, unless it has rows that an
  // export target has not taken. True if it is gone.
  absl::StatusOr<bool> DropPartition(const std::string& parent, const std::string& table, bool attached,
                                     bool detaching);
  // After targets were changed, in their transaction.
  absl::Status DeriveInterest(Transaction& tx);
  // Runs `run` over all of `part`; where it runs into lock_timeout, since another transaction holds a key of one, over
  // its halves, so that the one is alone in the end: it goes to `busy`.
  absl::Status SplitOnLockTimeout(std::span<const size_t> part,
                                  const std::function<absl::Status(std::span<const size_t>)>& run,
                                  const std::function<void(size_t)>& busy);
  // Of a graph that cannot be written: refuses the jobs that need what another transaction holds.
  absl::Status RefuseHeldUp(std::span<const GraphJob> jobs, std::vector<absl::Status>& refused);
  absl::StatusOr<SettleResult> CompletePart(int32_t queue, std::span<const CompleteItem> items,
                                            Transaction::Limits limits);
  // Jobs that are all plain (IsPlain).
  absl::StatusOr<EnqueueResult> EnqueuePlain(int32_t queue, std::span<const NewJob> jobs);
  absl::StatusOr<EnqueueResult> EnqueueKeyedScoped(Transaction& tx, int32_t queue, int16_t scope,
                                                   std::span<const NewJob* const> jobs,
                                                   std::span<const std::string> keys,
                                                   std::span<const std::string> fingerprints,
                                                   std::span<const std::string> retry_of, bool commit);

  const PostgresOptions options_;
  Metrics& metrics_;
  ConnectionPool pool_;
  std::unique_ptr<Connection> listener_;  // AwaitReady's alone.
};

template <typename T>
absl::StatusOr<T> PostgresStore::Run(const char* name, Transaction::Limits limits,
                                     std::function<absl::StatusOr<T>(Transaction&)> body) {
  std::optional<absl::StatusOr<T>> answer;
  absl::Status status = RunLoop(name, limits, [&](Transaction& tx) {
    answer.emplace(body(tx));
    return answer->status();
  });
  if (!status.ok()) return status;
  return std::move(*answer);
}

}  // namespace tenure::store::postgres
