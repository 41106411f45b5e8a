#include "server/engine/engine_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/logging.h"
#include "server/base/status.h"

namespace tenure::engine {
namespace {

LaneLimits LimitsOf(const Options& options) {
  return {static_cast<size_t>(options.max_batch_items), options.max_batch_bytes,
          static_cast<size_t>(options.max_waiting_items)};
}

// Jobs without keys meet no other batch's: two batches may be under way at once.
LaneLimits Doubled(LaneLimits limits) {
  limits.in_flight = 2;
  return limits;
}

// The queues that a queue's rules name.
std::vector<std::string> RuleQueues(const store::QueueSettings& settings) {
  if (settings.dead_letter_queue.empty()) return {};
  return {settings.dead_letter_queue};
}

}  // namespace

std::unique_ptr<Engine> MakeEngine(store::Store& store, Clock& clock, Metrics& metrics, Options options) {
  return std::make_unique<EngineImpl>(store, clock, metrics, std::move(options));
}

EngineImpl::EngineImpl(store::Store& store, Clock& clock, Metrics& metrics, Options options)
    : store_(store),
      clock_(clock),
      metrics_(metrics),
      options_(std::move(options)),
      executor_(options_.database_threads),
      timers_(clock),
      directory_(store, executor_, std::max(1, options_.database_threads / 2)),
      watch_(clock),
      notices_(timers_, options_),
      waiters_(store, executor_, timers_, options_),
      desk_(store, executor_, timers_, directory_, metrics, options_,
            {[this](const std::vector<store::ClaimedJob>& jobs, Clock::TimePoint sent) { Granted(jobs, sent); },
             [this] { reconcile_ = true; },
             [this](std::vector<store::ClaimedJob> jobs) {
               Undeliverable({std::move(jobs), false});
             },
             [this] { return replica_.load(); },
             [this](const std::string& worker, const std::vector<QueueShare>& queues) {
               std::vector<std::string> names;
               for (size_t i = 0; i < queues.size() && i < 20; ++i) names.push_back(queues[i].queue);
               std::lock_guard<std::mutex> lock(mu_);
               seen_workers_[worker] = std::move(names);
             },
             [this](int32_t queue, int64_t jobs) { admission_.Took(queue, jobs); },
             [this](int32_t queue, bool more) { admission_.Claimed(queue, more); }}),
      admission_(
          store, executor_, timers_, metrics,
          [this](int32_t queue, const store::AdmitResult& result) { NoteAdmitted(queue, result); },
          [this](const store::ResolveResult& result) { NoteResolved(result); }),
      enqueue_lane_("enqueue", executor_, metrics, Doubled(LimitsOf(options_)),
                    [this](int32_t queue, std::span<const store::NewJob> items) {
                      return FlushEnqueue(queue, items, Way::kPlain);
                    }),
      keyed_lane_("enqueue_keyed", executor_, metrics, LimitsOf(options_),
                  [this](int32_t queue, std::span<const store::NewJob> items) {
                    return FlushEnqueue(queue, items, Way::kKeyed);
                  }),
      unique_lane_("enqueue_unique", executor_, metrics, LimitsOf(options_),
                   [this](int32_t queue, std::span<const store::NewJob> items) {
                     return FlushEnqueue(queue, items, Way::kUnique);
                   }),
      busy_lane_("enqueue_busy", executor_, metrics, LimitsOf(options_),
                 [this](int32_t queue, std::span<const store::NewJob> items) {
                   return FlushEnqueue(queue, items, Way::kUnique);
                 }),
      extend_lane_(
          "extend", executor_, metrics, LimitsOf(options_),
          [this](int32_t queue, std::span<const store::ExtendItem> items) { return FlushExtend(queue, items); }),
      complete_lane_(
          "complete", executor_, metrics, LimitsOf(options_),
          [this](int32_t queue, std::span<const store::CompleteItem> items) { return FlushComplete(queue, items); }),
      fail_lane_("fail", executor_, metrics, LimitsOf(options_),
                 [this](int32_t queue, std::span<const store::FailItem> items) { return FlushFail(queue, items); }),
      release_lane_("release", executor_, metrics, LimitsOf(options_),
                    [this](int32_t queue, std::span<const store::GiveBackItem> items) {
                      return FlushGiveBack(queue, store::Verb::kRelease, items);
                    }),
      snooze_lane_("snooze", executor_, metrics, LimitsOf(options_),
                   [this](int32_t queue, std::span<const store::GiveBackItem> items) {
                     return FlushGiveBack(queue, store::Verb::kSnooze, items);
                   }) {
  directory_.OnChange([this](const store::Queue& queue) { desk_.NoteQueue(queue); });
}

EngineImpl::~EngineImpl() { Stop(clock_.Now()); }

void EngineImpl::Start() {
  loop_ = std::thread([this] { ReplicaLoop(); });
  if (options_.notify) listener_ = std::thread([this] { ListenLoop(); });
  ScheduleReaping();
}

void EngineImpl::Drain() {
  draining_ = true;
  desk_.Drain();
  notices_.Drain();
  waiters_.Drain();
  // Tell the others now, not with the next heartbeat.
  {
    std::lock_guard<std::mutex> lock(mu_);
    next_heartbeat_ = {};
  }
  cv_.notify_all();
}

void EngineImpl::Stop(Deadline deadline) {
  if (!draining_) Drain();
  {
    std::unique_lock<std::mutex> lock(mu_);
    if (stopping_) return;
    while (calls_ > 0 && clock_.Now() < deadline) clock_.WaitUntil(lock, idle_cv_, deadline);
    stopping_ = true;
  }
  cv_.notify_all();
  admission_.Stop();
  if (loop_.joinable()) loop_.join();
  if (listener_.joinable()) listener_.join();
  timers_.Stop();
  executor_.Stop();
  enqueue_lane_.Abandon();
  keyed_lane_.Abandon();
  unique_lane_.Abandon();
  busy_lane_.Abandon();
  extend_lane_.Abandon();
  complete_lane_.Abandon();
  fail_lane_.Abandon();
  release_lane_.Abandon();
  snooze_lane_.Abandon();
  const int32_t replica = replica_.exchange(0);
  if (replica != 0) {
    if (absl::Status left = store_.UnregisterReplica(replica); !left.ok()) {
      LogWarn("replica row not released", {{"error", std::string(left.message())}});
    }
  }
}

void EngineImpl::BeginCall() {
  std::lock_guard<std::mutex> lock(mu_);
  ++calls_;
}

void EngineImpl::EndCall() {
  std::lock_guard<std::mutex> lock(mu_);
  if (--calls_ == 0) idle_cv_.notify_all();
}

absl::Status EngineImpl::Stopped() {
  return MakeError(absl::StatusCode::kUnavailable, "DRAINING", "this replica has shut down; try another one");
}

// What the row leaves to the queue.
void EngineImpl::Fill(store::Job& job) {
  if (job.max_attempts > 0 && job.crash_budget > 0) return;
  store::QueueSettings settings;
  if (auto queue = directory_.Find(job.id.queue)) settings = queue->settings;
  if (job.max_attempts <= 0) job.max_attempts = settings.max_attempts.value_or(20);
  if (job.crash_budget <= 0) job.crash_budget = settings.crash_budget.value_or(5);
}

absl::Status EngineImpl::KnowQueues(std::span<store::Job* const> jobs) {
  std::vector<int32_t> ids;
  ids.reserve(jobs.size());
  for (const store::Job* job : jobs) ids.push_back(job->id.queue);
  TENURE_RETURN_IF_ERROR(directory_.EnsureKnown(ids));
  for (store::Job* job : jobs) Fill(*job);
  return absl::OkStatus();
}

Callback<store::Job> EngineImpl::Filled(Callback<store::Job> done) {
  return [this, done = Tracked(std::move(done))](absl::StatusOr<store::Job> job) {
    if (job.ok()) {
      store::Job* one = &*job;
      if (absl::Status known = KnowQueues({&one, 1}); !known.ok()) return done(known);
    }
    done(std::move(job));
  };
}

std::shared_ptr<PollHandle> EngineImpl::Get(const store::JobId& id, absl::Duration wait, Deadline deadline,
                                            Callback<store::Job> done) {
  auto finish = Filled(std::move(done));
  if (wait > absl::ZeroDuration() && !draining_) return waiters_.Wait(id, wait, deadline, std::move(finish));
  executor_.Post([this, id, finish = std::move(finish)] { finish(waiters_.Read(id)); });
  return nullptr;
}

void EngineImpl::GetRecord(const store::JobId& id, Callback<store::Job> done) {
  executor_.Post([this, id, finish = Filled(std::move(done))] { finish(store_.Get(id)); });
}

void EngineImpl::List(std::string queue, store::ListFilter filter, Callback<store::ListPage> done) {
  executor_.Post(
      [this, queue = std::move(queue), filter = std::move(filter), done = Tracked(std::move(done))]() mutable {
        if (!queue.empty()) {
          auto row = store_.EnsureQueue(queue, /*create=*/false);
          if (!row.ok()) return done(row.status());
          directory_.LearnIfNew(*row);
          filter.queue = row->id;
        }
        auto page = store_.List(filter);
        if (page.ok()) {
          std::vector<store::Job*> jobs;
          for (store::Job& job : page->jobs) jobs.push_back(&job);
          if (absl::Status known = KnowQueues(jobs); !known.ok()) return done(known);
        }
        done(std::move(page));
      });
}

void EngineImpl::Retry(std::vector<store::JobId> ids, std::string request_id,
                       Callback<std::vector<store::RetryOutcome>> done) {
  executor_.Post([this, ids = std::move(ids), request_id = std::move(request_id), done = Tracked(std::move(done))] {
    std::vector<store::RetryOutcome> outcomes;
    std::map<store::JobId, size_t> firsts;
    for (const store::JobId& id : ids) {
      // Named twice in a call, a job is retried once.
      if (const auto [first, fresh] = firsts.emplace(id, outcomes.size()); !fresh) {
        outcomes.push_back(outcomes[first->second]);
        continue;
      }
      auto outcome = store_.Retry(id, request_id);
      if (!outcome.ok()) return done(outcome.status());
      LookAtGates(outcome->id.queue, std::move(outcome->blocked));
      outcomes.push_back(std::move(*outcome));
    }
    done(std::move(outcomes));
  });
}

std::shared_ptr<PollHandle> EngineImpl::AwaitNotices(std::string worker, std::vector<int64_t> seen, absl::Duration wait,
                                                     Deadline deadline, Callback<NoticesAnswer> done) {
  return notices_.Await(
      std::move(worker), std::move(seen), wait, deadline,
      [done = Tracked(std::move(done))](absl::StatusOr<NoticesAnswer> answer) { done(std::move(answer)); });
}

QueueInfo EngineImpl::InfoOf(const store::Queue& queue) const {
  QueueInfo info;
  info.queue = queue;
  std::lock_guard<std::mutex> lock(mu_);
  if (auto counts = counts_.find(queue.id); counts != counts_.end()) info.counts = counts->second;
  if (auto oldest = oldest_.find(queue.id); oldest != oldest_.end() && info.counts.ready > 0)
    info.oldest_ready = oldest->second;
  return info;
}

absl::StatusOr<QueueInfo> EngineImpl::Learned(absl::StatusOr<store::Queue> queue) {
  if (!queue.ok()) return queue.status();
  directory_.Learn(*queue);
  return InfoOf(*queue);
}

void EngineImpl::CreateQueue(std::string name, store::QueueSettings settings, bool paused, Callback<QueueInfo> done) {
  executor_.Post(
      [this, name = std::move(name), settings = std::move(settings), paused, done = Tracked(std::move(done))] {
        if (const auto to = EnsureQueues(RuleQueues(settings)); !to.ok()) return done(to.status());
        done(Learned(store_.CreateQueue(name, settings, paused)));
      });
}

void EngineImpl::UpdateQueue(std::string name, store::QueueSettings settings, std::set<std::string> fields,
                             Callback<QueueInfo> done) {
  executor_.Post([this, name = std::move(name), settings = std::move(settings), fields = std::move(fields),
                  done = Tracked(std::move(done))] {
    if (const auto queue = store_.EnsureQueue(name, /*create=*/false); !queue.ok()) return done(queue.status());
    if (const auto to = EnsureQueues(RuleQueues(settings)); !to.ok()) return done(to.status());
    absl::StatusOr<QueueInfo> changed = Learned(store_.UpdateQueue(name, settings, fields));
    // Who waited for a turn may have a place in another line now, or none to wait in.
    if (changed.ok() && fields.contains("fair_tenants")) admission_.Look(changed->queue.id, {"q"});
    if (changed.ok() && fields.contains("groups_skip_retrying")) LookAtGroups(changed->queue.id);
    done(std::move(changed));
  });
}

void EngineImpl::SetPaused(std::string name, bool paused, Callback<QueueInfo> done) {
  executor_.Post([this, name = std::move(name), paused, done = Tracked(std::move(done))] {
    done(Learned(store_.SetPaused(name, paused)));
  });
}

void EngineImpl::GetQueue(std::string name, Callback<QueueInfo> done) {
  executor_.Post([this, name = std::move(name), done = Tracked(std::move(done))] {
    auto queue = store_.EnsureQueue(name, /*create=*/false);
    if (!queue.ok()) return done(queue.status());
    directory_.LearnIfNew(*queue);
    done(InfoOf(*queue));
  });
}

void EngineImpl::ListQueues(std::string after_name, std::string prefix, int limit,
                            Callback<std::vector<QueueInfo>> done) {
  executor_.Post(
      [this, after_name = std::move(after_name), prefix = std::move(prefix), limit, done = Tracked(std::move(done))] {
        auto queues = store_.ListQueues(after_name, prefix, limit);
        if (!queues.ok()) return done(queues.status());
        std::vector<QueueInfo> infos;
        for (const store::Queue& queue : *queues) {
          directory_.LearnIfNew(queue);
          infos.push_back(InfoOf(queue));
        }
        done(std::move(infos));
      });
}

void EngineImpl::ListWorkers(std::string after, int limit, Callback<std::vector<store::WorkerRow>> done) {
  executor_.Post([this, after = std::move(after), limit, done = Tracked(std::move(done))] {
    // What this replica has seen since it last wrote it down.
    std::vector<store::WorkerSeen> seen;
    {
      std::lock_guard<std::mutex> lock(mu_);
      for (auto& [worker, queues] : seen_workers_) seen.push_back({worker, std::move(queues)});
      seen_workers_.clear();
    }
    if (!seen.empty()) {
      if (absl::Status written = store_.RecordWorkers(seen); !written.ok()) return done(written);
    }
    done(store_.ListWorkers(after, limit));
  });
}

void EngineImpl::ListReplicas(Callback<std::vector<store::ReplicaRow>> done) {
  executor_.Post([this, done = Tracked(std::move(done))] { done(store_.ListReplicas()); });
}

void EngineImpl::ListBackground(Callback<std::vector<store::BackgroundRow>> done) {
  executor_.Post([this, done = Tracked(std::move(done))] { done(store_.ListBackground()); });
}

void EngineImpl::Inspect(Callback<store::DatabaseInfo> done) {
  executor_.Post([this, done = Tracked(std::move(done))] { done(store_.Inspect()); });
}

std::vector<QueueInfo> EngineImpl::Snapshot() const {
  std::vector<QueueInfo> infos;
  for (const store::Queue& queue : directory_.All()) infos.push_back(InfoOf(queue));
  return infos;
}

void EngineImpl::NoteReady(std::vector<store::ReadyRange> ranges) {
  desk_.NoteReady(ranges);
  TellOthers(ranges);
}

void EngineImpl::NoteScheduled(const std::optional<absl::Duration>& from_now) {
  if (from_now && on_scheduled_) on_scheduled_(*from_now);
}

Health EngineImpl::health() const {
  Health health;
  health.draining = draining_;
  std::lock_guard<std::mutex> lock(mu_);
  const Clock::TimePoint now = clock_.Now();
  health.event_lag = last_ok_ == Clock::TimePoint{} ? absl::InfiniteDuration() : absl::FromChrono(now - last_ok_);
  health.database_ok = replica_ != 0 && last_error_.ok() && last_ok_ != Clock::TimePoint{};
  // Without an error nothing has failed yet: it is still connecting.
  if (!health.database_ok) health.database_error = std::string(last_error_.message());
  const std::string reason = DetailsOf(last_error_).reason;
  if (reason == "SCHEMA_TOO_OLD" || reason == "SCHEMA_MISMATCH") health.schema_error = health.database_error;
  return health;
}

}  // namespace tenure::engine
