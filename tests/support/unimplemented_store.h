// A store of which nothing works: tests derive from it and script the few methods that their subject calls. Not a
// double of the real one, whose logic is its SQL: that is tested on a PostgreSQL. Layer: tests. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/store.h"

namespace tenure::testing {

class UnimplementedStore : public store::Store {
 public:
  absl::StatusOr<store::Queue> EnsureQueue(std::string_view, bool) override { return Unimplemented(); }
  absl::StatusOr<store::Queue> CreateQueue(std::string_view, const store::QueueSettings&, bool) override {
    return Unimplemented();
  }
  absl::StatusOr<store::Queue> UpdateQueue(std::string_view, const store::QueueSettings&,
                                           const std::set<std::string>&) override {
    return Unimplemented();
  }
  absl::StatusOr<store::Queue> SetPaused(std::string_view, bool) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::Queue>> ListQueues(std::string_view, std::string_view, int) override {
    return Unimplemented();
  }
  absl::StatusOr<std::vector<store::Queue>> LoadQueues(std::span<const int32_t>) override { return Unimplemented(); }
  absl::StatusOr<store::Move> CreateMove(const store::MoveSpec&, int32_t, int32_t, std::string_view) override {
    return Unimplemented();
  }
  absl::StatusOr<store::Move> GetMove(int64_t) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::Move>> ListMoves(int64_t, int) override { return Unimplemented(); }
  absl::StatusOr<store::Move> SetMoveState(int64_t, store::MoveState) override { return Unimplemented(); }
  absl::StatusOr<std::vector<int64_t>> ListRunningMoves() override { return Unimplemented(); }
  absl::StatusOr<store::MoveStep> StepMove(const store::Fence&, int64_t, int) override { return Unimplemented(); }
  absl::Status NoteMoveError(const store::Fence&, int64_t, std::string_view) override { return Unimplemented(); }
  absl::StatusOr<int> PruneMoves(const store::ShardFence&, absl::Duration, int) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::RewriteProgress>> ListRewrites() override { return Unimplemented(); }
  absl::StatusOr<store::RewriteStep> StepRewrite(const store::Fence&, std::string_view, int) override {
    return Unimplemented();
  }
  absl::Status NoteRewriteError(const store::Fence&, std::string_view, std::string_view) override {
    return Unimplemented();
  }
  absl::StatusOr<store::Schedule> CreateSchedule(std::string_view, const store::ScheduleSettings&, int32_t,
                                                 bool) override {
    return Unimplemented();
  }
  absl::StatusOr<store::Schedule> UpdateSchedule(std::string_view, const store::ScheduleSettings&, int32_t,
                                                 const std::set<std::string>&) override {
    return Unimplemented();
  }
  absl::StatusOr<store::Schedule> GetSchedule(std::string_view) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::Schedule>> ListSchedules(std::string_view, std::string_view, int) override {
    return Unimplemented();
  }
  absl::Status DeleteSchedule(std::string_view) override { return Unimplemented(); }
  absl::StatusOr<store::Schedule> SetSchedulePaused(std::string_view, bool) override { return Unimplemented(); }
  absl::StatusOr<store::TriggeredJob> TriggerSchedule(std::string_view, std::string_view,
                                                      std::vector<store::ReadyRange>*) override {
    return Unimplemented();
  }
  absl::StatusOr<store::DueSchedules> ListDueSchedules(int, std::span<const int64_t>) override {
    return Unimplemented();
  }
  absl::StatusOr<store::FireResult> FireSchedules(const store::Fence&, std::span<const store::Firing>) override {
    return Unimplemented();
  }
  absl::StatusOr<int> PruneScheduleRuns(const store::Fence&, absl::Duration, int) override { return Unimplemented(); }
  absl::StatusOr<std::map<std::string, int64_t>> TenantDepths(int32_t, std::span<const std::string>, int64_t) override {
    return Unimplemented();
  }
  absl::StatusOr<std::vector<bool>> MakeNone(int32_t, std::span<const store::NewJob* const>) override {
    return Unimplemented();
  }
  absl::StatusOr<store::Target> CreateTarget(std::string_view, const store::TargetSettings&, std::span<const int32_t>,
                                             bool) override {
    return Unimplemented();
  }
  absl::StatusOr<store::Target> UpdateTarget(
      std::string_view, const store::TargetSettings&, std::span<const int32_t>, const std::set<std::string>&,
      const std::function<absl::Status(const store::TargetSettings&)>&) override {
    return Unimplemented();
  }
  absl::StatusOr<store::Target> GetTarget(std::string_view) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::Target>> ListTargets(std::string_view, std::string_view, int) override {
    return Unimplemented();
  }
  absl::Status DeleteTarget(std::string_view) override { return Unimplemented(); }
  absl::StatusOr<store::Target> SetTargetPaused(std::string_view, bool) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::Delivery>> ListDeadDeliveries(std::string_view, int64_t, int) override {
    return Unimplemented();
  }
  absl::StatusOr<store::Redriven> RedriveDeliveries(std::string_view, std::span<const int64_t>) override {
    return Unimplemented();
  }
  absl::StatusOr<std::vector<store::TargetWork>> LoadTargets(store::TargetPurpose) override { return Unimplemented(); }
  absl::StatusOr<store::EventPage> TakePage(const store::Fence&, int64_t, int, bool) override {
    return Unimplemented();
  }
  absl::Status FinishPage(const store::Fence&, int64_t, const store::EventPage&, size_t,
                          std::span<const store::Refused>, std::string_view) override {
    return Unimplemented();
  }
  absl::StatusOr<std::vector<store::Delivery>> DueDeliveries(int64_t, int) override { return Unimplemented(); }
  absl::Status SettleDeliveries(const store::Fence&, int64_t, std::span<const store::DeliveryOutcome>) override {
    return Unimplemented();
  }
  absl::Status NoteTarget(const store::Fence&, int64_t, std::string_view, std::optional<store::NextRun>) override {
    return Unimplemented();
  }
  absl::StatusOr<int> PruneDeliveries(const store::Fence&, int64_t, absl::Duration, int) override {
    return Unimplemented();
  }
  absl::Status RotateOutbox(const store::Fence&) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::DayPartition>> ListExports(int64_t, int32_t) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::Job>> ReadDay(const store::DayPartition&, int64_t, int) override {
    return Unimplemented();
  }
  absl::StatusOr<store::LivePage> ReadLive(int32_t, int64_t, int) override { return Unimplemented(); }
  absl::Status RecordExport(const store::Fence&, int64_t, const store::DayPartition&, int64_t) override {
    return Unimplemented();
  }
  absl::StatusOr<bool> DropExported(const store::Fence&, const store::DayPartition&) override {
    return Unimplemented();
  }
  absl::StatusOr<store::AdmitResult> Admit(int32_t, std::span<const std::string>, int, int64_t) override {
    return Unimplemented();
  }
  absl::StatusOr<store::Explanation> Explain(const store::JobId&) override { return Unimplemented(); }
  absl::StatusOr<store::BlockedPage> BlockedNames(const store::BlockedPage::Cursor&, int) override {
    return Unimplemented();
  }
  absl::StatusOr<std::vector<int32_t>> Recalls(int) override { return Unimplemented(); }
  absl::StatusOr<store::RecallStep> Recall(int32_t, int) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::AdmissionCounts>> CountBlocked() override { return Unimplemented(); }
  absl::StatusOr<store::Limit> SetLimit(int32_t, store::LimitScope, std::string_view,
                                        const store::LimitSettings&) override {
    return Unimplemented();
  }
  absl::StatusOr<store::Limit> FindLimit(int32_t, store::LimitScope, std::string_view) override {
    return Unimplemented();
  }
  absl::StatusOr<std::vector<store::Limit>> ListLimits(int32_t, store::LimitScope, std::string_view, int) override {
    return Unimplemented();
  }
  absl::Status DeleteLimit(int32_t, store::LimitScope, std::string_view) override { return Unimplemented(); }
  absl::StatusOr<store::EnqueueResult> Enqueue(int32_t, std::span<const store::NewJob>) override {
    return Unimplemented();
  }
  absl::StatusOr<store::EnqueueResult> EnqueueKeyed(int32_t, std::span<const store::NewJob>) override {
    return Unimplemented();
  }
  absl::StatusOr<store::EnqueueResult> EnqueueUnique(int32_t, std::span<const store::NewJob>) override {
    return Unimplemented();
  }
  absl::StatusOr<store::GraphResult> EnqueueGraph(std::span<const store::GraphJob>) override { return Unimplemented(); }
  absl::StatusOr<store::ResolveResult> ResolveDependents(int32_t, std::span<const int64_t>) override {
    return Unimplemented();
  }
  absl::StatusOr<store::DependencyPage> SweepDependencies(const store::DependencyPage::Cursor&, int) override {
    return Unimplemented();
  }
  absl::StatusOr<store::Job> Get(const store::JobId&) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::JobId>> Ended(std::span<const store::JobId>) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::JobId>> WhereNow(std::span<const store::JobId>) override { return Unimplemented(); }
  absl::StatusOr<store::ListPage> List(const store::ListFilter&) override { return Unimplemented(); }
  absl::StatusOr<store::CancelResult> Cancel(int32_t, std::span<const store::JobId>, std::string_view) override {
    return Unimplemented();
  }
  absl::StatusOr<store::RetryOutcome> Retry(const store::JobId&, std::string_view) override { return Unimplemented(); }
  absl::StatusOr<store::ClaimResult> Claim(const store::ClaimBatch&) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::NamedClaimOutcome>> ClaimNamed(int32_t, int32_t, std::string_view, absl::Duration,
                                                                   std::string_view, std::span<const store::JobId>,
                                                                   int64_t) override {
    return Unimplemented();
  }
  absl::StatusOr<std::optional<std::vector<store::ClaimedJob>>> FindClaim(std::string_view) override {
    return Unimplemented();
  }
  absl::StatusOr<std::vector<store::ExtendOutcome>> Extend(int32_t, std::span<const store::ExtendItem>) override {
    return Unimplemented();
  }
  absl::StatusOr<store::SettleResult> Complete(int32_t, std::span<const store::CompleteItem>) override {
    return Unimplemented();
  }
  absl::StatusOr<store::SettleResult> Fail(int32_t, std::span<const store::FailItem>) override {
    return Unimplemented();
  }
  absl::StatusOr<store::SettleResult> GiveBack(int32_t, store::Verb, std::span<const store::GiveBackItem>) override {
    return Unimplemented();
  }
  absl::StatusOr<std::vector<store::ResolvedToken>> ResolveTokens(int32_t, store::Verb,
                                                                  std::span<const store::LeaseToken>) override {
    return Unimplemented();
  }
  absl::StatusOr<std::vector<store::Reaped>> Reap(int32_t, std::span<const store::LeaseRef>,
                                                  std::vector<store::ReadyRange>*, absl::Time) override {
    return Unimplemented();
  }
  absl::StatusOr<std::vector<store::LeaseGrant>> ListLeases(int32_t, std::span<const int64_t>) override {
    return Unimplemented();
  }
  absl::StatusOr<std::vector<store::LeaseRef>> GoneLeases(int32_t, std::span<const store::LeaseRef>) override {
    return Unimplemented();
  }
  absl::Status DropGrants(std::span<const int64_t>) override { return Unimplemented(); }
  absl::StatusOr<store::Orphans> ListOrphans(const store::ShardFence&, int64_t) override { return Unimplemented(); }
  absl::StatusOr<store::RecoverResult> Recover(const store::ShardFence&, int32_t, std::span<const store::LeaseRef>,
                                               absl::Time) override {
    return Unimplemented();
  }
  absl::StatusOr<Start> ReadStart() override { return Unimplemented(); }
  absl::StatusOr<store::EventBatch> ReadEvents(std::string_view) override { return Unimplemented(); }
  absl::StatusOr<std::vector<std::optional<absl::Duration>>> OldestReady(std::span<const store::ReadyRange>) override {
    return Unimplemented();
  }
  absl::StatusOr<int32_t> RegisterReplica(std::string_view, std::string_view) override { return Unimplemented(); }
  absl::Status Heartbeat(int32_t, bool, absl::Duration, absl::Time) override { return Unimplemented(); }
  absl::Status UnregisterReplica(int32_t) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::ReplicaRow>> ListReplicas() override { return Unimplemented(); }
  absl::StatusOr<int> EvictReplicas(const store::ShardFence&) override { return Unimplemented(); }
  absl::Status RecordOutage(absl::Duration) override { return Unimplemented(); }
  absl::StatusOr<std::optional<store::Fence>> AcquireLeader(std::string_view, int32_t, absl::Duration) override {
    return Unimplemented();
  }
  absl::Status RenewLeader(const store::Fence&, absl::Duration) override { return Unimplemented(); }
  absl::Status ReleaseLeader(const store::Fence&) override { return Unimplemented(); }
  absl::Status ReportRun(std::string_view, const RunReport&) override { return Unimplemented(); }
  absl::Status ReportShardRun(std::string_view, int32_t, const RunReport&) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::BackgroundRow>> ListBackground() override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::ShardLease>> LeaseShards(std::string_view, int32_t, absl::Duration) override {
    return Unimplemented();
  }
  absl::Status GiveUpShard(const store::ShardFence&, int32_t, int, std::string_view) override {
    return Unimplemented();
  }
  absl::Status LeaveShards(std::string_view, int32_t) override { return Unimplemented(); }
  absl::StatusOr<store::PromoteResult> Promote(const store::Fence&, absl::Time, int) override {
    return Unimplemented();
  }
  absl::StatusOr<int> ExpireJobs(const store::Fence&, int, store::GatesByQueue*) override { return Unimplemented(); }
  absl::Status EnsurePartitions(int) override { return Unimplemented(); }
  absl::StatusOr<std::vector<std::string>> DropPartitions(const store::ShardFence&, int, int) override {
    return Unimplemented();
  }
  absl::StatusOr<int> Prune(const store::ShardFence&, int) override { return Unimplemented(); }
  absl::StatusOr<int> PruneUnique(const store::ShardFence&, std::optional<UniqueCursor>*, int) override {
    return Unimplemented();
  }
  absl::Status FoldStats(const store::Fence&) override { return Unimplemented(); }
  absl::Status RecordWorkers(std::span<const store::WorkerSeen>) override { return Unimplemented(); }
  absl::StatusOr<std::vector<store::WorkerRow>> ListWorkers(std::string_view, int) override { return Unimplemented(); }
  absl::StatusOr<store::DatabaseInfo> Inspect() override { return Unimplemented(); }
  absl::Status RebuildIndex(const store::Fence&, std::string_view, const IndexWorkLimits&,
                            const std::stop_token&) override {
    return Unimplemented();
  }
  absl::Status DropLeftoverIndex(const store::Fence&, std::string_view, const IndexWorkLimits&,
                                 const std::stop_token&) override {
    return Unimplemented();
  }
  absl::Status NotifyReady(int32_t) override { return Unimplemented(); }
  absl::StatusOr<bool> AwaitReady(int32_t, absl::Duration) override { return Unimplemented(); }
  absl::Status Ping() override { return Unimplemented(); }

 protected:
  static absl::Status Unimplemented() { return absl::UnimplementedError("not part of this test"); }
};

}  // namespace tenure::testing
