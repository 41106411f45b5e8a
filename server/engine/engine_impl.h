// The engine's parts, put together. Layer: engine. Thread-safe.
//
// engine_impl.cc: life and look-ups. engine_enqueue.cc: Enqueue. engine_jobs.cc: Cancel, Claim. engine_tokens.cc: all
// that names a lease token. engine_schedules.cc, engine_targets.cc: schedules, targets. engine_admission.cc: limits and
// admission. engine_dependencies.cc: jobs that wait for others.
// replica_loop.cc: the thread that keeps this replica alive and reads events.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/engine/admission_desk.h"
#include "server/engine/batch_lane.h"
#include "server/engine/claim_desk.h"
#include "server/engine/depth_gate.h"
#include "server/engine/engine.h"
#include "server/engine/executor.h"
#include "server/engine/lease_watch.h"
#include "server/engine/notice_board.h"
#include "server/engine/outcome_waiters.h"
#include "server/engine/own_transactions.h"
#include "server/engine/queue_directory.h"
#include "server/engine/timers.h"
#include "server/store/store.h"

namespace tenure::engine {

class EngineImpl : public Engine {
 public:
  EngineImpl(store::Store& store, Clock& clock, Metrics& metrics, Options options);
  ~EngineImpl() override;

  void Start() override;
  void Drain() override;
  void Stop(Deadline deadline) override;

  void Enqueue(std::vector<EnqueueItem> items, Deadline deadline,
               Callback<std::vector<store::EnqueueOutcome>> done) override;
  std::shared_ptr<PollHandle> Get(const store::JobId& id, absl::Duration wait, Deadline deadline,
                                  Callback<store::Job> done) override;
  void GetRecord(const store::JobId& id, Callback<store::Job> done) override;
  void List(std::string queue, store::ListFilter filter, Callback<store::ListPage> done) override;
  void Cancel(std::vector<store::JobId> ids, std::string reason, Deadline deadline,
              Callback<std::vector<CancelAnswer>> done) override;
  void Retry(std::vector<store::JobId> ids, std::string request_id,
             Callback<std::vector<store::RetryOutcome>> done) override;

  std::shared_ptr<PollHandle> Claim(ClaimCall call, Deadline deadline, Callback<ClaimAnswer> done) override;
  void ClaimNamed(NamedClaimCall call, Deadline deadline,
                  Callback<std::vector<store::NamedClaimOutcome>> done) override;
  void Extend(std::vector<store::ExtendItem> items, Deadline deadline,
              Callback<std::vector<ExtendAnswer>> done) override;
  void Complete(std::vector<CompleteItem> items, Deadline deadline, Callback<std::vector<SettleAnswer>> done) override;
  void Fail(std::vector<store::FailItem> items, Deadline deadline, Callback<std::vector<SettleAnswer>> done) override;
  void Release(std::vector<store::GiveBackItem> items, Deadline deadline,
               Callback<std::vector<SettleAnswer>> done) override;
  void Snooze(std::vector<store::GiveBackItem> items, Deadline deadline,
              Callback<std::vector<SettleAnswer>> done) override;
  std::shared_ptr<PollHandle> AwaitNotices(std::string worker, std::vector<int64_t> seen, absl::Duration wait,
                                           Deadline deadline, Callback<NoticesAnswer> done) override;
  void Undeliverable(ClaimAnswer answer) override;

  void CreateQueue(std::string name, store::QueueSettings settings, bool paused, Callback<QueueInfo> done) override;
  void UpdateQueue(std::string name, store::QueueSettings settings, std::set<std::string> fields,
                   Callback<QueueInfo> done) override;
  void SetPaused(std::string name, bool paused, Callback<QueueInfo> done) override;
  void GetQueue(std::string name, Callback<QueueInfo> done) override;
  void ListQueues(std::string after_name, std::string prefix, int limit,
                  Callback<std::vector<QueueInfo>> done) override;

  void CreateMove(store::MoveSpec spec, std::string request_id, Callback<store::Move> done) override;
  void GetMove(int64_t id, Callback<store::Move> done) override;
  void ListMoves(int64_t before, int limit, Callback<std::vector<store::Move>> done) override;
  void SetMoveState(int64_t id, store::MoveState state, Callback<store::Move> done) override;
  void CreateSchedule(std::string name, store::ScheduleSettings settings, bool paused,
                      Callback<store::Schedule> done) override;
  void UpdateSchedule(std::string name, store::ScheduleSettings settings, std::set<std::string> fields,
                      Callback<store::Schedule> done) override;
  void GetSchedule(std::string name, Callback<store::Schedule> done) override;
  void ListSchedules(std::string after_name, std::string prefix, int limit,
                     Callback<std::vector<store::Schedule>> done) override;
  void DeleteSchedule(std::string name, Callback<bool> done) override;
  void SetSchedulePaused(std::string name, bool paused, Callback<store::Schedule> done) override;
  void TriggerSchedule(std::string name, std::string request_id, Callback<store::TriggeredJob> done) override;
  void CreateTarget(std::string name, store::TargetSettings settings, bool paused,
                    Callback<store::Target> done) override;
  void UpdateTarget(std::string name, store::TargetSettings settings, std::set<std::string> fields, TargetCheck check,
                    Callback<store::Target> done) override;
  void GetTarget(std::string name, Callback<store::Target> done) override;
  void ListTargets(std::string after_name, std::string prefix, int limit,
                   Callback<std::vector<store::Target>> done) override;
  void DeleteTarget(std::string name, Callback<bool> done) override;
  void SetTargetPaused(std::string name, bool paused, Callback<store::Target> done) override;
  void ListDeadDeliveries(std::string name, int64_t after, int limit,
                          Callback<std::vector<store::Delivery>> done) override;
  void RedriveDeliveries(std::string name, std::vector<int64_t> ids, Callback<store::Redriven> done) override;

  void SetLimit(std::string queue, store::LimitScope scope, std::string key, store::LimitSettings settings,
                LimitCallback<store::Limit> done) override;
  void GetLimit(std::string queue, store::LimitScope scope, std::string key, LimitCallback<store::Limit> done) override;
  void ListLimits(std::string queue, store::LimitScope after_scope, std::string after_key, int limit,
                  LimitCallback<std::vector<store::Limit>> done) override;
  void DeleteLimit(std::string queue, store::LimitScope scope, std::string key, LimitCallback<bool> done) override;
  void Explain(const store::JobId& id, LimitCallback<store::Explanation> done) override;
  void NoteGates(const store::GatesByQueue& gates) override;

  void ListWorkers(std::string after, int limit, Callback<std::vector<store::WorkerRow>> done) override;
  void ListReplicas(Callback<std::vector<store::ReplicaRow>> done) override;
  void ListBackground(Callback<std::vector<store::BackgroundRow>> done) override;
  void Inspect(Callback<store::DatabaseInfo> done) override;

  std::string QueueName(int32_t id) const override { return directory_.Name(id); }
  int32_t replica_id() const override { return replica_.load(); }
  const Options& options() const override { return options_; }
  Health health() const override;
  std::vector<QueueInfo> Snapshot() const override;
  void NoteReady(std::vector<store::ReadyRange> ranges) override;
  void OnScheduled(std::function<void(absl::Duration)> listener) override { on_scheduled_ = std::move(listener); }

 private:
  // One call's items on their way through lanes, slow lane and second statements.
  template <typename Item, typename Outcome, typename Answer>
  struct TokenCall;
  template <typename Item, typename Outcome, typename Answer>
  void RunTokenCall(BatchLane<Item, Outcome>& lane, std::shared_ptr<TokenCall<Item, Outcome, Answer>> call);
  template <typename Item, typename Outcome, typename Answer>
  void AddToLane(BatchLane<Item, Outcome>& lane, std::shared_ptr<TokenCall<Item, Outcome, Answer>> call, int32_t queue,
                 std::vector<size_t> indexes);

  template <typename Item>
  void Settle(BatchLane<Item, store::SettleOutcome>& lane, std::vector<Item> items, Deadline deadline,
              Callback<std::vector<SettleAnswer>> done);

  using ExtendLane = BatchLane<store::ExtendItem, store::ExtendOutcome>;
  using CompleteLane = BatchLane<store::CompleteItem, store::SettleOutcome>;
  using FailLane = BatchLane<store::FailItem, store::SettleOutcome>;
  using GiveBackLane = BatchLane<store::GiveBackItem, store::SettleOutcome>;
  using EnqueueLane = BatchLane<store::NewJob, store::EnqueueOutcome>;

  // ---- engine_enqueue.cc ----
  // How jobs are written: which lane they go through.
  enum class Way { kPlain, kKeyed, kUnique };
  static Way WayOf(const store::NewJob& job);
  EnqueueLane& LaneOf(Way way);
  struct EnqueueCall;
  // Items of which none waits for another.
  void EnqueueParts(std::vector<EnqueueItem> items, const QueueDirectory::Resolved& resolved, Deadline deadline,
                    Callback<std::vector<store::EnqueueOutcome>> done);
  void AddPart(const std::shared_ptr<EnqueueCall>& call, int32_t queue, EnqueueLane& lane,
               const std::vector<size_t>& indexes);
  EnqueueLane::Outcomes FlushEnqueue(int32_t queue, std::span<const store::NewJob> items, Way way);
  EnqueueLane::Outcomes FlushWithinBounds(const store::Queue& queue, std::span<const store::NewJob> items, Way way);
  EnqueueLane::Outcomes WriteJobs(int32_t queue, std::span<const store::NewJob> items, Way way);
  // Who of some jobs of a queue keeps its bounds.
  struct Bounded {
    std::vector<absl::Status> statuses;  // Not OK: shed.
    std::vector<size_t> counted;         // Those that take room: depth_ wants to be told of as many (Answered).
  };
  absl::StatusOr<Bounded> WithinBounds(const store::Queue& queue, std::span<const store::NewJob* const> jobs);
  absl::StatusOr<Bounded> CountIn(const store::Queue& queue, std::span<const store::NewJob* const> jobs,
                                  const std::vector<bool>& make_none);
  void NoteShed(const std::string& queue, size_t jobs);

  // --- engine_busy_keys.cc
  // Gives the outcomes of enqueues whose key somebody holds their jobs, to be tried again.
  static void NoteBusy(std::span<const store::NewJob> items, std::span<store::EnqueueOutcome> outcomes);
  // Takes over such an outcome and calls `done` with the last one, before `deadline`. False: it stands as it is.
  bool TryAgain(int32_t queue, store::EnqueueOutcome& outcome, Deadline deadline,
                std::function<void(store::EnqueueOutcome)> done);
  void TryBusy(int32_t queue, std::shared_ptr<const store::NewJob> job, Clock::TimePoint until, Clock::Duration delay,
               std::function<void(store::EnqueueOutcome)> done);
  // Jobs of the queue that have not ended, as far as events have told.
  int64_t DepthOf(int32_t queue) const;

  ExtendLane::Outcomes FlushExtend(int32_t queue, std::span<const store::ExtendItem> items);
  CompleteLane::Outcomes FlushComplete(int32_t queue, std::span<const store::CompleteItem> items);
  FailLane::Outcomes FlushFail(int32_t queue, std::span<const store::FailItem> items);
  GiveBackLane::Outcomes FlushGiveBack(int32_t queue, store::Verb verb, std::span<const store::GiveBackItem> items);
  // Settles with `settle`, then looks up what it left unresolved; counts, wakes and forgets what follows from it.
  template <typename Item, typename SettleFn>
  absl::StatusOr<std::vector<store::SettleOutcome>> FlushSettle(int32_t queue, store::Verb verb,
                                                                std::span<const Item> items, SettleFn settle);
  // What an outcome says about a token, as the caller is told; nullopt: locked, try again.
  static std::optional<absl::Status> TokenStatus(store::TokenState state, const store::LeaseToken& token);
  void CountStale(int32_t queue, store::Verb verb, int n);
  void NoteScheduled(const std::optional<absl::Duration>& from_now);
  // Their ids; blocks.
  absl::StatusOr<std::vector<int32_t>> EnsureQueues(const std::vector<std::string>& names);

  // --- engine_admission.cc
  // A slot may have become free at these gates of a queue, or somebody new waits there.
  void LookAtGates(int32_t queue, store::GateNames names);
  void LookAtPrefix(int32_t queue, const std::string& prefix);
  void LookAtGroups(int32_t queue);
  void LookAtNames(int32_t queue, int sort, const std::string& prefix);
  // After a change of a limit. Blocks.
  void LookAfter(int32_t queue, store::LimitScope scope, const std::string& key);
  void NoteAdmitted(int32_t queue, const store::AdmitResult& result);

  // --- engine_dependencies.cc
  void NoteResolved(const store::ResolveResult& result);
  // Items of which some wait for others: all in one transaction. `queues`: of each item, or why there is none.
  void EnqueueGraph(std::vector<EnqueueItem> items, const QueueDirectory::Resolved& queues,
                    Callback<std::vector<store::EnqueueOutcome>> done);
  // Refuses what is beyond the bounds of its queue or tenant. `counted`: what depth_ has let through and is to be
  // answered, also where this fails. Blocks.
  absl::Status ShedFromGraph(std::vector<store::GraphJob>& graph, std::vector<size_t>& counted);

  // Counts the call until `done` has run (Stop waits for that), runs it at most once, and if it is dropped unrun (the
  // engine stopped), answers UNAVAILABLE in its place: no caller is left without an answer.
  template <typename T>
  Callback<T> Tracked(Callback<T> done) {
    struct Holder {
      EngineImpl* engine;
      Callback<T> done;
      void Run(absl::StatusOr<T> answer) {
        Callback<T> once = std::move(done);
        done = nullptr;
        if (!once) return;
        once(std::move(answer));
        engine->EndCall();
      }
      ~Holder() { Run(Stopped()); }
    };
    BeginCall();
    // Made in place: a temporary would be copied, and answer when it goes.
    std::shared_ptr<Holder> holder(new Holder{this, std::move(done)});
    return [holder](absl::StatusOr<T> answer) { holder->Run(std::move(answer)); };
  }
  void BeginCall();
  void EndCall();
  static absl::Status Stopped();

  void Fill(store::Job& job);
  // Fills in what the row leaves to the queue before `done` gets the job.
  Callback<store::Job> Filled(Callback<store::Job> done);
  absl::Status KnowQueues(std::span<store::Job* const> jobs);
  QueueInfo InfoOf(const store::Queue& queue) const;
  absl::StatusOr<QueueInfo> Learned(absl::StatusOr<store::Queue> queue);

  // --- replica_loop.cc
  // The named jobs of one queue. `request` empty: not to be repeated.
  absl::StatusOr<std::vector<store::NamedClaimOutcome>> ClaimNamedIn(int32_t queue, const NamedClaimCall& call,
                                                                     const std::string& request,
                                                                     const std::vector<store::JobId>& ids,
                                                                     int64_t max_bytes, Clock::TimePoint sent);
  void ReplicaLoop();
  void ListenLoop();
  // Something became ready by a transaction of this replica: tells the others, if that is asked for.
  void TellOthers(const std::vector<store::ReadyRange>& ready);
  absl::Status BeginReplica();
  absl::Status ReadEventsOnce();
  void Apply(const store::EventBatch& events);
  absl::Status Upkeep();
  absl::Status ReconcileLeases();
  void ReadOldest();
  void ReapDue();
  void ScheduleReaping();
  void Granted(const std::vector<store::ClaimedJob>& jobs, Clock::TimePoint sent);

  store::Store& store_;
  Clock& clock_;
  Metrics& metrics_;
  const Options options_;
  std::function<void(absl::Duration)> on_scheduled_;

  Executor executor_;
  Timers timers_;
  QueueDirectory directory_;
  LeaseWatch watch_;
  OwnTransactions own_;
  DepthGate depth_;
  NoticeBoard notices_;
  OutcomeWaiters waiters_;
  ClaimDesk desk_;
  AdmissionDesk admission_;
  EnqueueLane enqueue_lane_;
  EnqueueLane keyed_lane_;
  EnqueueLane unique_lane_;
  EnqueueLane busy_lane_;
  ExtendLane extend_lane_;
  CompleteLane complete_lane_;
  FailLane fail_lane_;
  GiveBackLane release_lane_;
  GiveBackLane snooze_lane_;

  std::atomic<int32_t> replica_{0};
  std::atomic<bool> draining_{false};
  std::atomic<bool> reconcile_{false};  // A claim's commit is in doubt: look for leases that nobody here knows.
  std::atomic<bool> reaping_{false};    // Off while the database is away: what ran out then is judged when it is back.

  mutable std::mutex mu_;
  std::condition_variable cv_;
  bool stopping_ = false;
  int calls_ = 0;
  std::condition_variable idle_cv_;
  std::string snapshot_;
  absl::Time database_time_ = absl::InfinitePast();  // When events were last read and every outage was on record.
  std::unordered_map<int32_t, store::QueueCounts> counts_;
  std::unordered_map<int32_t, absl::Duration> oldest_;
  std::unordered_map<std::string, std::vector<std::string>> seen_workers_;
  Clock::TimePoint last_ok_{};
  absl::Status last_error_;
  Clock::TimePoint next_heartbeat_{};
  Clock::TimePoint next_oldest_{};
  Clock::TimePoint next_reconcile_{};
  Clock::TimePoint next_workers_{};
  Clock::TimePoint next_grants_{};
  std::thread loop_;
  std::thread listener_;
  std::atomic<bool> notify_pending_{false};
};

}  // namespace tenure::engine
