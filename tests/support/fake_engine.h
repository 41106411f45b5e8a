// An engine for tests of the transports alone: each verb is a function that the test sets; what is not set answers
// UNIMPLEMENTED. It says nothing about what the real engine does. Layer: tests. As thread-safe as the functions that it
// is given; set them first.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/base/status.h"
#include "server/engine/engine.h"

namespace tenure::testing {

class FakeEngine : public engine::Engine {
 public:
  template <typename T>
  using Callback = engine::Callback<T>;
  using Deadline = engine::Deadline;
  using Handle = std::shared_ptr<engine::PollHandle>;
  template <typename... Args>
  using Hook = std::function<void(Args...)>;
  template <typename... Args>
  using PollHook = std::function<Handle(Args...)>;

  Hook<std::vector<engine::EnqueueItem>, Deadline, Callback<std::vector<store::EnqueueOutcome>>> enqueue;
  PollHook<store::JobId, absl::Duration, Deadline, Callback<store::Job>> get;
  Hook<store::JobId, Callback<store::Job>> get_record;
  Hook<std::string, store::ListFilter, Callback<store::ListPage>> list;
  Hook<std::vector<store::JobId>, std::string, Deadline, Callback<std::vector<engine::CancelAnswer>>> cancel;
  Hook<std::vector<store::JobId>, std::string, Callback<std::vector<store::RetryOutcome>>> retry;
  PollHook<engine::ClaimCall, Deadline, Callback<engine::ClaimAnswer>> claim;
  Hook<engine::NamedClaimCall, Deadline, Callback<std::vector<store::NamedClaimOutcome>>> claim_named;
  Hook<std::vector<store::ExtendItem>, Deadline, Callback<std::vector<engine::ExtendAnswer>>> extend;
  Hook<std::vector<engine::CompleteItem>, Deadline, Callback<std::vector<engine::SettleAnswer>>> complete;
  Hook<std::vector<store::FailItem>, Deadline, Callback<std::vector<engine::SettleAnswer>>> fail;
  Hook<std::vector<store::GiveBackItem>, Deadline, Callback<std::vector<engine::SettleAnswer>>> release;
  Hook<std::vector<store::GiveBackItem>, Deadline, Callback<std::vector<engine::SettleAnswer>>> snooze;
  PollHook<std::string, std::vector<int64_t>, absl::Duration, Deadline, Callback<engine::NoticesAnswer>> await_notices;
  Hook<engine::ClaimAnswer> undeliverable;
  Hook<std::string, store::QueueSettings, bool, Callback<engine::QueueInfo>> create_queue;
  Hook<std::string, store::QueueSettings, std::set<std::string>, Callback<engine::QueueInfo>> update_queue;
  Hook<std::string, bool, Callback<engine::QueueInfo>> set_paused;
  Hook<std::string, Callback<engine::QueueInfo>> get_queue;
  Hook<std::string, std::string, int, Callback<std::vector<engine::QueueInfo>>> list_queues;
  Hook<store::MoveSpec, std::string, Callback<store::Move>> create_move;
  Hook<int64_t, Callback<store::Move>> get_move;
  Hook<int64_t, int, Callback<std::vector<store::Move>>> list_moves;
  Hook<int64_t, store::MoveState, Callback<store::Move>> set_move_state;
  Hook<std::string, store::ScheduleSettings, bool, Callback<store::Schedule>> create_schedule;
  Hook<std::string, store::ScheduleSettings, std::set<std::string>, Callback<store::Schedule>> update_schedule;
  Hook<std::string, Callback<store::Schedule>> get_schedule;
  Hook<std::string, std::string, int, Callback<std::vector<store::Schedule>>> list_schedules;
  Hook<std::string, Callback<bool>> delete_schedule;
  Hook<std::string, bool, Callback<store::Schedule>> set_schedule_paused;
  Hook<std::string, std::string, Callback<store::TriggeredJob>> trigger_schedule;
  Hook<std::string, store::TargetSettings, bool, Callback<store::Target>> create_target;
  Hook<std::string, store::TargetSettings, std::set<std::string>, TargetCheck, Callback<store::Target>> update_target;
  Hook<std::string, Callback<store::Target>> get_target;
  Hook<std::string, std::string, int, Callback<std::vector<store::Target>>> list_targets;
  Hook<std::string, Callback<bool>> delete_target;
  Hook<std::string, bool, Callback<store::Target>> set_target_paused;
  Hook<std::string, int64_t, int, Callback<std::vector<store::Delivery>>> list_dead_deliveries;
  Hook<std::string, std::vector<int64_t>, Callback<store::Redriven>> redrive_deliveries;
  Hook<std::string, store::LimitScope, std::string, store::LimitSettings, Callback<store::Limit>> set_limit;
  Hook<std::string, store::LimitScope, std::string, Callback<store::Limit>> get_limit;
  Hook<std::string, store::LimitScope, std::string, int, Callback<std::vector<store::Limit>>> list_limits;
  Hook<std::string, store::LimitScope, std::string, Callback<bool>> delete_limit;
  Hook<store::JobId, Callback<store::Explanation>> explain;
  Hook<std::string, int, Callback<std::vector<store::WorkerRow>>> list_workers;
  Hook<Callback<std::vector<store::ReplicaRow>>> list_replicas;
  Hook<Callback<std::vector<store::BackgroundRow>>> list_background;
  Hook<Callback<store::DatabaseInfo>> inspect;
  engine::Options engine_options;

  void set_health(engine::Health health) {
    std::lock_guard lock(mutex_);
    health_ = std::move(health);
  }

  void Start() override {}
  void Drain() override {}
  void Stop(Deadline) override {}
  void Enqueue(std::vector<engine::EnqueueItem> items, Deadline deadline,
               Callback<std::vector<store::EnqueueOutcome>> done) override {
    Run(enqueue, done, std::move(items), deadline);
  }
  Handle Get(const store::JobId& id, absl::Duration wait, Deadline deadline, Callback<store::Job> done) override {
    return RunPoll(get, done, id, wait, deadline);
  }
  void GetRecord(const store::JobId& id, Callback<store::Job> done) override { Run(get_record, done, id); }
  void List(std::string queue, store::ListFilter filter, Callback<store::ListPage> done) override {
    Run(list, done, std::move(queue), std::move(filter));
  }
  void Cancel(std::vector<store::JobId> ids, std::string reason, Deadline deadline,
              Callback<std::vector<engine::CancelAnswer>> done) override {
    Run(cancel, done, std::move(ids), std::move(reason), deadline);
  }
  void Retry(std::vector<store::JobId> ids, std::string request_id,
             Callback<std::vector<store::RetryOutcome>> done) override {
    Run(retry, done, std::move(ids), std::move(request_id));
  }
  Handle Claim(engine::ClaimCall call, Deadline deadline, Callback<engine::ClaimAnswer> done) override {
    return RunPoll(claim, done, std::move(call), deadline);
  }
  void ClaimNamed(engine::NamedClaimCall call, Deadline deadline,
                  Callback<std::vector<store::NamedClaimOutcome>> done) override {
    Run(claim_named, done, std::move(call), deadline);
  }
  void Extend(std::vector<store::ExtendItem> items, Deadline deadline,
              Callback<std::vector<engine::ExtendAnswer>> done) override {
    Run(extend, done, std::move(items), deadline);
  }
  void Complete(std::vector<engine::CompleteItem> items, Deadline deadline,
                Callback<std::vector<engine::SettleAnswer>> done) override {
    Run(complete, done, std::move(items), deadline);
  }
  void Fail(std::vector<store::FailItem> items, Deadline deadline,
            Callback<std::vector<engine::SettleAnswer>> done) override {
    Run(fail, done, std::move(items), deadline);
  }
  void Release(std::vector<store::GiveBackItem> items, Deadline deadline,
               Callback<std::vector<engine::SettleAnswer>> done) override {
    Run(release, done, std::move(items), deadline);
  }
  void Snooze(std::vector<store::GiveBackItem> items, Deadline deadline,
              Callback<std::vector<engine::SettleAnswer>> done) override {
    Run(snooze, done, std::move(items), deadline);
  }
  Handle AwaitNotices(std::string worker, std::vector<int64_t> seen, absl::Duration wait, Deadline deadline,
                      Callback<engine::NoticesAnswer> done) override {
    return RunPoll(await_notices, done, std::move(worker), std::move(seen), wait, deadline);
  }
  void Undeliverable(engine::ClaimAnswer answer) override {
    if (undeliverable) undeliverable(std::move(answer));
  }
  void CreateQueue(std::string name, store::QueueSettings settings, bool paused,
                   Callback<engine::QueueInfo> done) override {
    Run(create_queue, done, std::move(name), std::move(settings), paused);
  }
  void UpdateQueue(std::string name, store::QueueSettings settings, std::set<std::string> fields,
                   Callback<engine::QueueInfo> done) override {
    Run(update_queue, done, std::move(name), std::move(settings), std::move(fields));
  }
  void SetPaused(std::string name, bool paused, Callback<engine::QueueInfo> done) override {
    Run(set_paused, done, std::move(name), paused);
  }
  void GetQueue(std::string name, Callback<engine::QueueInfo> done) override { Run(get_queue, done, std::move(name)); }
  void ListQueues(std::string after_name, std::string prefix, int limit,
                  Callback<std::vector<engine::QueueInfo>> done) override {
    Run(list_queues, done, std::move(after_name), std::move(prefix), limit);
  }
  void CreateMove(store::MoveSpec spec, std::string request_id, Callback<store::Move> done) override {
    Run(create_move, done, std::move(spec), std::move(request_id));
  }
  void GetMove(int64_t id, Callback<store::Move> done) override { Run(get_move, done, id); }
  void ListMoves(int64_t before, int limit, Callback<std::vector<store::Move>> done) override {
    Run(list_moves, done, before, limit);
  }
  void SetMoveState(int64_t id, store::MoveState state, Callback<store::Move> done) override {
    Run(set_move_state, done, id, state);
  }
  void CreateSchedule(std::string name, store::ScheduleSettings settings, bool paused,
                      Callback<store::Schedule> done) override {
    Run(create_schedule, done, std::move(name), std::move(settings), paused);
  }
  void UpdateSchedule(std::string name, store::ScheduleSettings settings, std::set<std::string> fields,
                      Callback<store::Schedule> done) override {
    Run(update_schedule, done, std::move(name), std::move(settings), std::move(fields));
  }
  void GetSchedule(std::string name, Callback<store::Schedule> done) override {
    Run(get_schedule, done, std::move(name));
  }
  void ListSchedules(std::string after_name, std::string prefix, int limit,
                     Callback<std::vector<store::Schedule>> done) override {
    Run(list_schedules, done, std::move(after_name), std::move(prefix), limit);
  }
  void DeleteSchedule(std::string name, Callback<bool> done) override { Run(delete_schedule, done, std::move(name)); }
  void SetSchedulePaused(std::string name, bool paused, Callback<store::Schedule> done) override {
    Run(set_schedule_paused, done, std::move(name), paused);
  }
  void TriggerSchedule(std::string name, std::string request_id, Callback<store::TriggeredJob> done) override {
    Run(trigger_schedule, done, std::move(name), std::move(request_id));
  }
  void CreateTarget(std::string name, store::TargetSettings settings, bool paused,
                    Callback<store::Target> done) override {
    Run(create_target, done, std::move(name), std::move(settings), paused);
  }
  void UpdateTarget(std::string name, store::TargetSettings settings, std::set<std::string> fields, TargetCheck check,
                    Callback<store::Target> done) override {
    Run(update_target, done, std::move(name), std::move(settings), std::move(fields), std::move(check));
  }
  void GetTarget(std::string name, Callback<store::Target> done) override { Run(get_target, done, std::move(name)); }
  void ListTargets(std::string after_name, std::string prefix, int limit,
                   Callback<std::vector<store::Target>> done) override {
    Run(list_targets, done, std::move(after_name), std::move(prefix), limit);
  }
  void DeleteTarget(std::string name, Callback<bool> done) override { Run(delete_target, done, std::move(name)); }
  void SetTargetPaused(std::string name, bool paused, Callback<store::Target> done) override {
    Run(set_target_paused, done, std::move(name), paused);
  }
  void ListDeadDeliveries(std::string name, int64_t after, int limit,
                          Callback<std::vector<store::Delivery>> done) override {
    Run(list_dead_deliveries, done, std::move(name), after, limit);
  }
  void RedriveDeliveries(std::string name, std::vector<int64_t> ids, Callback<store::Redriven> done) override {
    Run(redrive_deliveries, done, std::move(name), std::move(ids));
  }
  void SetLimit(std::string queue, store::LimitScope scope, std::string key, store::LimitSettings settings,
                Callback<store::Limit> done) override {
    Run(set_limit, done, std::move(queue), scope, std::move(key), settings);
  }
  void GetLimit(std::string queue, store::LimitScope scope, std::string key, Callback<store::Limit> done) override {
    Run(get_limit, done, std::move(queue), scope, std::move(key));
  }
  void ListLimits(std::string queue, store::LimitScope after_scope, std::string after_key, int limit,
                  Callback<std::vector<store::Limit>> done) override {
    Run(list_limits, done, std::move(queue), after_scope, std::move(after_key), limit);
  }
  void DeleteLimit(std::string queue, store::LimitScope scope, std::string key, Callback<bool> done) override {
    Run(delete_limit, done, std::move(queue), scope, std::move(key));
  }
  void Explain(const store::JobId& id, Callback<store::Explanation> done) override { Run(explain, done, id); }
  void NoteGates(const store::GatesByQueue&) override {}
  void ListWorkers(std::string after, int limit, Callback<std::vector<store::WorkerRow>> done) override {
    Run(list_workers, done, std::move(after), limit);
  }
  void ListReplicas(Callback<std::vector<store::ReplicaRow>> done) override { Run(list_replicas, done); }
  void ListBackground(Callback<std::vector<store::BackgroundRow>> done) override { Run(list_background, done); }
  void Inspect(Callback<store::DatabaseInfo> done) override { Run(inspect, done); }
  std::string QueueName(int32_t id) const override { return "queue" + std::to_string(id); }
  int32_t replica_id() const override { return 3; }
  const engine::Options& options() const override { return engine_options; }
  engine::Health health() const override {
    std::lock_guard lock(mutex_);
    return health_;
  }
  std::vector<engine::QueueInfo> Snapshot() const override { return {}; }
  void NoteReady(std::vector<store::ReadyRange>) override {}
  void OnScheduled(std::function<void(absl::Duration)>) override {}

 private:
  static absl::Status NotSet() { return absl::UnimplementedError("the test sets no such verb"); }

  template <typename HookType, typename Done, typename... Args>
  static void Run(const HookType& hook, Done& done, Args&&... args) {
    if (!hook) return done(NotSet());
    hook(std::forward<Args>(args)..., std::move(done));
  }
  template <typename HookType, typename Done, typename... Args>
  static Handle RunPoll(const HookType& hook, Done& done, Args&&... args) {
    if (hook) return hook(std::forward<Args>(args)..., std::move(done));
    done(NotSet());
    return nullptr;
  }

  mutable std::mutex mutex_;
  engine::Health health_{.database_ok = true};
};

}  // namespace tenure::testing
