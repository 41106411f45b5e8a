// EngineImpl: the thread that keeps this replica alive. It registers the replica and renews its lease, reads what the
// others did (events), watches for outages, and keeps what is shown to operators. All of it goes on with
// --background=none.
//
// An outage is a time in which this loop could not reach the database (or the process stood still). When it is over it
// is written down before any lease is ended, so that leases that ran out meanwhile are forgiven (reap.sql). A statement
// that was already on its way, or a timer that fires first, must not be quicker: leases are judged as of the database's
// time when events were last read.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/logging.h"
#include "server/base/status.h"
#include "server/engine/engine_impl.h"

namespace tenure::engine {
namespace {

// As long as the shortest lease: a worker that extends in time gets through anything shorter. A healthy round takes
// milliseconds.
constexpr auto kOutage = std::chrono::seconds(1);
constexpr auto kErrorPause = std::chrono::milliseconds(250);
constexpr absl::Duration kListen = absl::Milliseconds(200);
// NOTIFY takes a lock of the whole database at commit, so what becomes ready within this is told at once.
constexpr auto kTellAfter = std::chrono::milliseconds(2);
constexpr auto kOldestEvery = std::chrono::seconds(2);
constexpr auto kReconcileEvery = std::chrono::seconds(30);
// Longer than a statement whose connection broke can go on (its own time limit is 5 s).
constexpr auto kDoubtEnds = std::chrono::seconds(7);
// Grants found in the database are kept so long for repeats of their claims.
constexpr auto kLongestWindow = std::chrono::minutes(1);
constexpr auto kDropGrantsEvery = std::chrono::seconds(1);
constexpr auto kWorkersEvery = std::chrono::seconds(10);
constexpr auto kReapEvery = std::chrono::milliseconds(100);
constexpr auto kLookAgain = std::chrono::milliseconds(300);

}  // namespace

void EngineImpl::ReplicaLoop() {
  bool was_away = false;
  for (;;) {
    absl::Status status = replica_ == 0 ? BeginReplica() : absl::OkStatus();
    if (status.ok()) status = ReadEventsOnce();
    if (status.ok()) status = Upkeep();
    const Clock::TimePoint now = clock_.Now();
    if (!status.ok()) {
      reaping_ = false;
      if (absl::IsNotFound(status) || absl::IsOutOfRange(status)) {
        // Its own lease ran out (it stood still), or it fell too far behind: a new replica begins.
        LogWarn("replica begins anew", {{"reason", std::string(status.message())}});
        replica_ = 0;
      } else if (!was_away) {
        LogWarn("database out of reach", {{"error", std::string(status.message())}});
      }
      was_away = true;
    } else if (was_away) {
      LogInfo("database back", {});
      was_away = false;
    }
    std::unique_lock<std::mutex> lock(mu_);
    last_error_ = status;
    metrics_.event_lag.Add({}).Set(
        last_ok_ == Clock::TimePoint{} ? 0 : std::chrono::duration<double>(now - last_ok_).count());
    if (stopping_) return;
    clock_.WaitUntil(lock, cv_,
                     now + (status.ok() ? absl::ToChronoMicroseconds(options_.event_interval) : kErrorPause));
    if (stopping_) return;
  }
}

// Reads events before their time when another replica says that something has become ready. Events remain what is
// relied on: a notification that is lost costs an event interval.
void EngineImpl::ListenLoop() {
  bool told = false;
  for (;;) {
    const absl::StatusOr<bool> came = store_.AwaitReady(replica_, kListen);
    if (came.ok() && *came) cv_.notify_all();
    if (!came.ok() && !told) LogWarn("notifications are not heard", {{"error", std::string(came.status().message())}});
    told = !came.ok();
    if (absl::IsFailedPrecondition(came.status())) return;
    std::unique_lock<std::mutex> lock(mu_);
    if (!came.ok() && !stopping_) clock_.WaitUntil(lock, cv_, clock_.Now() + kErrorPause);
    if (stopping_) return;
  }
}

void EngineImpl::TellOthers(const std::vector<store::ReadyRange>& ready) {
  if (!options_.notify || ready.empty() || notify_pending_.exchange(true)) return;
  timers_.After(kTellAfter, [this] {
    executor_.Post([this] {
      notify_pending_ = false;
      // What it would have shortened takes an event interval then, and the statement's metric tells of the failure.
      store_.NotifyReady(replica_).IgnoreError();
    });
  });
}

absl::Status EngineImpl::BeginReplica() {
  TENURE_RETURN_IF_ERROR(store_.Ping());
  TENURE_ASSIGN_OR_RETURN(const int32_t replica, store_.RegisterReplica(options_.replica_name, options_.version));
  TENURE_RETURN_IF_ERROR(store_.EnsurePartitions(1));
  TENURE_ASSIGN_OR_RETURN(store::Store::Start start, store_.ReadStart());
  std::vector<int32_t> ids;
  for (const auto& [id, unused] : start.counts) ids.push_back(id);
  for (const auto& [id, unused] : start.ready) ids.push_back(id);
  TENURE_RETURN_IF_ERROR(directory_.Reload(ids));
  {
    std::lock_guard<std::mutex> lock(mu_);
    snapshot_ = start.snapshot;
    counts_.clear();
    for (const auto& [id, counts] : start.counts) counts_[id] = counts;
    next_heartbeat_ = {};
    next_reconcile_ = clock_.Now() + kReconcileEvery;
  }
  replica_ = replica;
  desk_.Reset(start.ready);
  LogInfo("replica registered", {{"replica", std::to_string(replica)}, {"name", options_.replica_name}});
  return absl::OkStatus();
}

absl::Status EngineImpl::ReadEventsOnce() {
  std::string since;
  Clock::TimePoint last;
  {
    std::lock_guard<std::mutex> lock(mu_);
    since = snapshot_;
    last = last_ok_;
  }
  depth_.ReadingBegins();
  TENURE_ASSIGN_OR_RETURN(const store::EventBatch events, store_.ReadEvents(since));
  const Clock::TimePoint now = clock_.Now();
  if (last != Clock::TimePoint{} && now - last > kOutage) {
    const absl::Duration length = absl::FromChrono(now - last);
    TENURE_RETURN_IF_ERROR(store_.RecordOutage(length));
    LogWarn("outage is over; leases that ran out in it are forgiven",
            {{"seconds", absl::StrCat(absl::ToInt64Seconds(length))}});
  }
  reaping_ = true;
  {
    std::lock_guard<std::mutex> lock(mu_);
    snapshot_ = events.snapshot;
    // From here on, what had ended by then may be judged: if there was an outage, it is on record.
    database_time_ = events.now;
    // What stands still later in the round is an outage as well, so the round's end does not count.
    last_ok_ = now;
  }
  Apply(events);
  return absl::OkStatus();
}

void EngineImpl::Apply(const store::EventBatch& events) {
  if (!events.changed_queues.empty()) {
    if (absl::Status loaded = directory_.Reload(events.changed_queues); !loaded.ok()) {
      // Their events will not come again: begin anew, which loads all.
      LogWarn("queues not reloaded", {{"error", std::string(loaded.message())}});
      replica_ = 0;
    }
  }
  std::vector<int32_t> ended_in;
  std::vector<int32_t> ids;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (const auto& [queue, delta] : events.deltas) {
      counts_[queue].Add(delta);
      ids.push_back(queue);
      if (delta.completed + delta.discarded + delta.cancelled + delta.expired > 0) ended_in.push_back(queue);
    }
  }
  depth_.ReadingEnded();
  // A queue that an application's tenure.enqueue made comes with its first job.
  if (absl::Status known = directory_.EnsureKnown(ids); !known.ok()) {
    LogWarn("queues not loaded", {{"error", std::string(known.message())}});
  }
  for (const store::Notice& notice : events.notices) watch_.Forget(notice.job.seq, notice.number);
  std::vector<store::ReadyRange> ready;
  std::copy_if(events.ready.begin(), events.ready.end(), std::back_inserter(ready),
               [this](const store::ReadyRange& range) { return !own_.Contains(range.xid); });
  own_.Turn();
  desk_.NoteReady(ready);
  if (!events.notices.empty()) notices_.Post(events.notices);
  NoteGates(events.admit);
  if (events.earliest_due) NoteScheduled(*events.earliest_due - events.now);
  for (int32_t queue : ended_in) waiters_.EndedSomewhere(queue);
}

absl::Status EngineImpl::Upkeep() {
  const Clock::TimePoint now = clock_.Now();
  bool heartbeat, oldest, reconcile, workers, grants;
  std::vector<store::WorkerSeen> seen;
  absl::Time seen_at;
  {
    std::lock_guard<std::mutex> lock(mu_);
    seen_at = database_time_;
    heartbeat = now >= next_heartbeat_;
    oldest = now >= next_oldest_;
    reconcile = now >= next_reconcile_;
    workers = now >= next_workers_;
    grants = now >= next_grants_;
    if (grants) next_grants_ = now + kDropGrantsEvery;
    if (workers) {
      next_workers_ = now + kWorkersEvery;
      for (auto& [worker, queues] : seen_workers_) seen.push_back({worker, std::move(queues)});
      seen_workers_.clear();
    }
  }
  if (heartbeat) {
    TENURE_RETURN_IF_ERROR(store_.Heartbeat(replica_, draining_, options_.replica_lease, seen_at));
    std::lock_guard<std::mutex> lock(mu_);
    next_heartbeat_ = now + absl::ToChronoMicroseconds(options_.heartbeat_interval);
  }
  const bool in_doubt = reconcile_.exchange(false);
  if (reconcile || in_doubt) {
    if (absl::Status known = ReconcileLeases(); !known.ok()) {
      reconcile_ = in_doubt;
      return known;
    }
    if (in_doubt) {
      // The claim may still be at work in the database, and commit after this look.
      std::lock_guard<std::mutex> lock(mu_);
      next_reconcile_ = now + kDoubtEnds;
    }
  }
  if (!seen.empty()) TENURE_RETURN_IF_ERROR(store_.RecordWorkers(seen));
  if (grants) {
    const std::vector<int64_t> over = watch_.TakeOver();
    if (!over.empty()) {
      if (absl::Status dropped = store_.DropGrants(over); !dropped.ok()) {
        for (int64_t grant : over) watch_.AddGrant(grant, now, {});
        return dropped;
      }
    }
  }
  if (oldest) ReadOldest();
  metrics_.leases_tracked.Add({}).Set(static_cast<double>(watch_.size()));
  metrics_.polls_parked.Add({{"kind", "claim"}}).Set(static_cast<double>(desk_.parked()));
  metrics_.polls_parked.Add({{"kind", "notices"}}).Set(static_cast<double>(notices_.parked()));
  metrics_.polls_parked.Add({{"kind", "get"}}).Set(static_cast<double>(waiters_.parked()));
  return absl::OkStatus();
}

// The net under the timers: a claim whose commit was in doubt has left leases that nobody here knows.
absl::Status EngineImpl::ReconcileLeases() {
  TENURE_ASSIGN_OR_RETURN(std::vector<store::LeaseGrant> grants, store_.ListLeases(replica_, watch_.grants()));
  const Clock::TimePoint now = clock_.Now();
  for (const store::LeaseGrant& grant : grants) {
    std::vector<std::pair<store::LeaseRef, Clock::TimePoint>> leases;
    for (const store::LeaseRemaining& lease : grant.leases) {
      leases.emplace_back(lease.ref,
                          now + std::max(absl::ToChronoNanoseconds(lease.remaining), std::chrono::nanoseconds(0)));
    }
    // How long its claim may be repeated is not known here.
    watch_.AddGrant(grant.id, now + kLongestWindow, leases);
  }
  std::lock_guard<std::mutex> lock(mu_);
  next_reconcile_ = now + kReconcileEvery;
  return absl::OkStatus();
}

void EngineImpl::ReadOldest() {
  const std::vector<store::ReadyRange> positions = desk_.Positions();
  std::unordered_map<int32_t, absl::Duration> oldest;
  if (!positions.empty()) {
    auto ages = store_.OldestReady(positions);
    if (!ages.ok()) return;  // The next round reads them again; readiness speaks of the database.
    desk_.NoteAges(positions, *ages);
    for (size_t i = 0; i < positions.size(); ++i) {
      if (!(*ages)[i]) continue;
      absl::Duration& age = oldest[positions[i].queue];
      age = std::max(age, *(*ages)[i]);
    }
  }
  std::lock_guard<std::mutex> lock(mu_);
  oldest_ = std::move(oldest);
  next_oldest_ = clock_.Now() + kOldestEvery;
}

void EngineImpl::Granted(const std::vector<store::ClaimedJob>& jobs, Clock::TimePoint sent) {
  if (jobs.empty()) return;
  const std::string name = directory_.Name(jobs.front().job.id.queue);
  auto& latency = metrics_.job_start_latency.Add({{"queue", name}});
  struct Grant {
    Clock::TimePoint keep_until{};
    std::vector<std::pair<store::LeaseRef, Clock::TimePoint>> leases;
  };
  std::map<int64_t, Grant> grants;
  for (const store::ClaimedJob& job : jobs) {
    const Clock::TimePoint ends = sent + absl::ToChronoNanoseconds(job.lease);
    Grant& grant = grants[job.grant];
    grant.leases.push_back({{job.job.id.queue, job.job.id.seq, job.token.number, job.grant}, ends});
    // The database counts the window from a little later.
    if (job.repeatable) grant.keep_until = std::max<Clock::TimePoint>(grant.keep_until, ends + std::chrono::seconds(1));
    if (job.job.lease) latency.Observe(std::max(0.0, absl::ToDoubleSeconds(job.job.lease->granted - job.job.due)));
  }
  for (const auto& [id, grant] : grants) watch_.AddGrant(id, grant.keep_until, grant.leases);
  Metrics::Add(metrics_.lease_acquisitions, {{"queue", name}, {"outcome", "acquired"}},
               static_cast<double>(jobs.size()));
}

void EngineImpl::ScheduleReaping() {
  timers_.After(kReapEvery, [this] {
    if (reaping_ && replica_ != 0) ReapDue();
    ScheduleReaping();
  });
}

void EngineImpl::ReapDue() {
  absl::Time as_of;
  {
    std::lock_guard<std::mutex> lock(mu_);
    as_of = database_time_;
  }
  std::map<int32_t, std::vector<store::LeaseRef>> held;
  const auto all_due = watch_.TakeDue(&held);
  // Another replica, or an application's tenure.complete, may have settled them, and nobody tells.
  for (auto& [queue, leases] : held) {
    executor_.Post([this, queue = queue, leases = std::move(leases)] {
      const auto gone = store_.GoneLeases(queue, leases);
      if (!gone.ok()) return;  // They are looked at again in a minute.
      for (const store::LeaseRef& lease : *gone) watch_.Forget(lease.id, lease.number);
    });
  }
  for (const auto& [queue, due] : all_due) {
    const size_t page = static_cast<size_t>(options_.max_batch_items);
    for (size_t at = 0; at < due.size(); at += page) {
      std::vector<store::LeaseRef> part(due.begin() + static_cast<std::ptrdiff_t>(at),
                                        due.begin() + static_cast<std::ptrdiff_t>(std::min(due.size(), at + page)));
      executor_.Post([this, queue = queue, as_of, part = std::move(part)] {
        std::vector<store::ReadyRange> ready;
        auto reaped = store_.Reap(queue, part, &ready, as_of);
        const Clock::TimePoint now = clock_.Now();
        if (!reaped.ok()) {
          for (const store::LeaseRef& lease : part) watch_.PutBack(lease, now + std::chrono::seconds(1));
          return;
        }
        int expired = 0, discarded = 0;
        store::GateNames freed;
        for (size_t i = 0; i < part.size(); ++i) {
          const store::Reaped& one = (*reaped)[i];
          if (one.remaining) {
            watch_.PutBack(part[i], now + absl::ToChronoNanoseconds(*one.remaining));
          } else if (one.locked) {
            watch_.PutBack(part[i], now + kLookAgain);
          } else {
            watch_.Drop(part[i]);
            expired += !one.gone;
            discarded += one.discarded;
            freed.insert(freed.end(), one.freed.begin(), one.freed.end());
          }
        }
        const std::string name = directory_.Name(queue);
        Metrics::Add(metrics_.lease_losses, {{"queue", name}, {"reason", "expired"}}, expired);
        Metrics::Add(metrics_.jobs_settled, {{"queue", name}, {"outcome", "discarded"}}, discarded);
        if (discarded > 0) {
          waiters_.EndedSomewhere(queue);
          freed.emplace_back("q");
          LookAtGates(queue, std::move(freed));
        }
        desk_.NoteReady(ready);
        TellOthers(ready);
      });
    }
  }
}

}  // namespace tenure::engine
