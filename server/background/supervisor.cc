// The supervisor: one Slot per selected worker. Layer: background.
#include "server/background/supervisor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/background/leader_lease.h"
#include "server/background/run_reporter.h"
#include "server/base/logging.h"

namespace tenure::background {
namespace {

// Pauses before a restart.
class Backoff {
 public:
  // The pause after a run of this length.
  Clock::Duration After(Clock::Duration run) {
    if (run >= kHealthy) level_ = 0;
    const Clock::Duration pause = kPauses[level_];
    level_ = std::min(level_ + 1, kPauses.size() - 1);
    return pause;
  }

 private:
  static constexpr std::array<Clock::Duration, 4> kPauses = {std::chrono::seconds(1), std::chrono::seconds(5),
                                                             std::chrono::seconds(30), std::chrono::minutes(2)};
  static constexpr Clock::Duration kHealthy = std::chrono::minutes(5);
  size_t level_ = 0;
};

// A store that refuses every write of a term, and still grants the next one, must not make a tight loop.
constexpr Clock::Duration kShortestTerm = std::chrono::seconds(1);

}  // namespace

// One worker: its thread, its runs.
class Supervisor::Slot : private RunContext::Listener {
 public:
  Slot(WorkerEntry entry, const Dependencies& dependencies, Metrics& metrics, std::function<int32_t()> replica,
       const SupervisorOptions& options, DeadlineWatch& watch)
      : entry_(entry),
        dependencies_(dependencies),
        store_(*dependencies.store),
        clock_(*dependencies.clock),
        replica_(std::move(replica)),
        options_(options),
        watch_(watch),
        leader_gauge_(metrics.background_leader.Add({{"worker", std::string(entry.name)}})),
        // Shard "-": the worker as a whole. One that holds leases by shard counts a shard's panics under its number.
        panic_counter_(metrics.background_panics.Add({{"worker", std::string(entry.name)}, {"shard", "-"}})),
        term_gauge_(metrics.background_term.Add({{"worker", std::string(entry.name)}})),
        metrics_(metrics),
        reporter_(
            std::string(entry.name), [this](const store::Store::RunReport& report) { return WriteReport(report); },
            clock_, metrics),
        wake_(clock_) {}

  ~Slot() override = default;

  // `ended` is called last thing on the thread.
  void Start(std::function<void()> ended) {
    thread_ = std::jthread([this, ended = std::move(ended)](const std::stop_token& stop) {
      Supervise(stop);
      ended_ = true;
      ended();
    });
  }

  void RequestStop() { thread_.request_stop(); }
  bool running() const { return thread_.joinable() && !ended_; }
  std::string_view name() const { return entry_.name; }

  WorkerState state() const {
    const RunReporter::State reported = reporter_.state();
    const std::lock_guard<std::mutex> lock(mutex_);
    return {.name = std::string(entry_.name),
            .needed_for_liveness = entry_.needed_for_liveness,
            .leading = leading_,
            .term = term_,
            .runs = reported.runs,
            .restarts = reported.restarts,
            .panics = panics_,
            .last_error = acquire_error_.empty() ? reported.last_error : acquire_error_};
  }

 private:
  enum class End { kStopped, kLost, kEnded };
  struct Grant {
    store::Fence fence;
    Clock::TimePoint sent;
  };

  void Supervise(const std::stop_token& stop) {
    Backoff backoff;
    while (!stop.stop_requested()) {
      End end = End::kEnded;
      Clock::TimePoint run_began = clock_.Now();
      // The last net: the store or the supervisor's own code may throw as well, and the process must not end.
      try {
        const std::optional<Grant> grant = Acquire(stop);
        if (!grant) return;
        run_began = clock_.Now();
        end = RunTerm(*grant, stop);
      } catch (...) {
        CountPanic(DescribeCurrentException());
        SetLeading(false, 0);
      }
      const Clock::Duration ran = clock_.Now() - run_began;
      Clock::Duration pause{};
      if (end == End::kEnded) {
        pause = backoff.After(ran);
        LogInfo("background worker restarts",
                {{"worker", std::string(entry_.name)}, {"after", absl::FormatDuration(absl::FromChrono(pause))}});
      } else if (end == End::kLost && ran < kShortestTerm) {
        pause = kShortestTerm;
      }
      if (pause > Clock::Duration::zero()) wake_.WaitUntil(clock_.Now() + pause, stop);
    }
  }

  // Waits for the lease. Nothing if stopped.
  std::optional<Grant> Acquire(const std::stop_token& stop) {
    if (entry_.leadership == Leadership::kOwnLeases) {
      return Grant{{std::string(entry_.name), 0}, clock_.Now()};
    }
    while (!stop.stop_requested()) {
      if (const int32_t replica = replica_(); replica != 0) {
        const Clock::TimePoint sent = clock_.Now();
        auto fence = store_.AcquireLeader(entry_.name, replica, options_.lease);
        NoteAcquire(fence.status());
        if (fence.ok() && *fence) return Grant{std::move(**fence), sent};
      }
      wake_.WaitUntil(clock_.Now() + absl::ToChronoNanoseconds(options_.acquire_interval), stop);
    }
    return std::nullopt;
  }

  End RunTerm(const Grant& grant, const std::stop_token& stop) {
    const bool led = entry_.leadership == Leadership::kOuterLease;
    LogInfo("background worker starts",
            {{"worker", std::string(entry_.name)}, {"term", absl::StrCat(grant.fence.term)}});
    if (led) SetLeading(true, grant.fence.term);

    // One stop signal for all reasons: shutdown, the lost lease, a panic on a thread of the worker's.
    std::stop_source run_stop;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      run_stop_ = run_stop;
      panicked_ = false;
    }
    const std::stop_callback on_stop(stop, [&] { run_stop.request_stop(); });
    std::optional<LeaderLease> lease;
    std::optional<ShardLeases> shards;
    // A loop that has gone to sleep does not report what it gathered: the renewals do.
    if (led) {
      lease.emplace(store_, clock_, watch_, grant.fence, options_.lease, grant.sent, [this] { reporter_.Flush(); });
    } else {
      shards.emplace(
          store_, clock_, metrics_, replica_,
          ShardLeases::Options{.worker = std::string(entry_.name),
                               .lease = options_.lease,
                               .interval = options_.acquire_interval,
                               .changed = [this](bool holds_any, int64_t term) { SetLeading(holds_any, term); },
                               .failed =
                                   [this](const absl::Status& status, bool panic) {
                                     if (panic) NotePanic();
                                     reporter_.OnRound(status);
                                   },
                               .asked = [this](const absl::Status& status) { NoteAcquire(status); }});
    }
    bool lost = false;
    std::string why;
    {
      std::optional<std::stop_callback<std::function<void()>>> on_lost;
      if (led) on_lost.emplace(lease->lost_token(), [&] { run_stop.request_stop(); });
      // At once, and not when the worker has returned: a replica that is stopped hands over first.
      std::optional<std::stop_callback<std::function<void()>>> on_leave;
      if (shards) on_leave.emplace(run_stop.get_token(), [&] { shards->RequestLeave(); });
      const absl::Status status = RunWorker(grant.fence, run_stop.get_token(), shards ? &*shards : nullptr);
      lost = (led && lease->lost()) || IsTermOver(status);
      why = status.ok() ? "returned" : status.ToString(absl::StatusToStringMode::kWithNoExtraData);
    }
    lease.reset();
    bool panicked;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      panicked = panicked_;
      if (panicked) why = panic_;
    }
    const bool ended = panicked || (!lost && !stop.stop_requested());
    if (ended) {
      if (!panicked) LogWarn("background worker ended", {{"worker", std::string(entry_.name)}, {"why", why}});
      reporter_.OnRestart(why);
    } else {
      reporter_.Flush();
    }
    shards.reset();
    SetLeading(false, 0);
    if (led && !lost) Release(grant.fence);
    if (panicked) return End::kEnded;
    if (lost) return End::kLost;
    return stop.stop_requested() ? End::kStopped : End::kEnded;
  }

  // Builds the worker, runs it and takes it down; whatever it throws is a panic.
  absl::Status RunWorker(const store::Fence& fence, const std::stop_token& stop, ShardLeases* shards) {
    try {
      RunContext context(fence, stop, clock_, *this, shards);
      const std::unique_ptr<Worker> worker = entry_.make(dependencies_);
      return worker->Run(context);
    } catch (...) {
      OnPanic(DescribeCurrentException());
      return absl::InternalError("panic");
    }
  }

  void Release(const store::Fence& fence) {
    const absl::Status status = store_.ReleaseLeader(fence);
    // Then it runs out by itself, which only takes longer.
    if (!status.ok()) {
      LogWarn("leader lease not released", {{"worker", fence.worker}, {"error", std::string(status.message())}});
    }
  }

  void OnRound(const absl::Status& status) override { reporter_.OnRound(status); }

  void OnPanic(std::string_view what) override {
    CountPanic(what);
    std::stop_source run_stop;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      panicked_ = true;
      panic_ = absl::StrCat("panic: ", absl::string_view(what.data(), what.size()));
      run_stop = run_stop_;
    }
    run_stop.request_stop();
  }

  void CountPanic(std::string_view what) {
    panic_counter_.Increment();
    LogError("background worker panicked", {{"worker", std::string(entry_.name)}, {"what", std::string(what)}});
    NotePanic();
  }

  void NotePanic() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++panics_;
  }

  absl::Status WriteReport(const store::Store::RunReport& report) {
    if (entry_.leadership == Leadership::kOuterLease) return store_.ReportRun(entry_.name, report);
    return store_.ReportShardRun(entry_.name, replica_(), report);
  }

  void NoteAcquire(const absl::Status& status) {
    const std::string error(status.ok() ? "" : status.ToString(absl::StatusToStringMode::kWithNoExtraData));
    bool changed;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      changed = error != acquire_error_;
      acquire_error_ = error;
    }
    if (changed && !status.ok()) {
      LogWarn("background worker's lease not available", {{"worker", std::string(entry_.name)}, {"error", error}});
    }
  }

  void SetLeading(bool leading, int64_t term) {
    leader_gauge_.Set(leading ? 1 : 0);
    term_gauge_.Set(static_cast<double>(term));
    const std::lock_guard<std::mutex> lock(mutex_);
    leading_ = leading;
    term_ = term;
  }

  const WorkerEntry entry_;
  const Dependencies dependencies_;
  store::Store& store_;
  Clock& clock_;
  const std::function<int32_t()> replica_;
  const SupervisorOptions options_;
  DeadlineWatch& watch_;
  prometheus::Gauge& leader_gauge_;
  prometheus::Counter& panic_counter_;
  prometheus::Gauge& term_gauge_;
  Metrics& metrics_;
  RunReporter reporter_;
  WakeUp wake_;

  mutable std::mutex mutex_;
  bool leading_ = false;  // From here on guarded by mutex_.
  int64_t term_ = 0;
  int64_t panics_ = 0;
  std::string acquire_error_;
  bool panicked_ = false;  // Of the current run.
  std::string panic_;
  std::stop_source run_stop_{std::nostopstate};

  std::atomic<bool> ended_{false};
  std::jthread thread_;  // Last: it uses the rest.
};

struct Supervisor::Watch {
  explicit Watch(Clock& clock) : deadlines(clock) {}
  DeadlineWatch deadlines;
};

Supervisor::Supervisor(std::vector<WorkerEntry> workers, const Dependencies& dependencies, Metrics& metrics,
                       std::function<int32_t()> replica, SupervisorOptions options)
    : clock_(*dependencies.clock), watch_(std::make_unique<Watch>(clock_)) {
  for (const WorkerEntry& entry : workers) {
    slots_.push_back(std::make_unique<Slot>(entry, dependencies, metrics, replica, options, watch_->deadlines));
  }
}

Supervisor::~Supervisor() {
  RequestStop();
  slots_.clear();  // Joins.
}

void Supervisor::Start() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_ = static_cast<int>(slots_.size());
  }
  for (const auto& slot : slots_) {
    slot->Start([this] {
      const std::lock_guard<std::mutex> lock(mutex_);
      --running_;
      ended_cv_.notify_all();
    });
  }
}

void Supervisor::RequestStop() {
  for (const auto& slot : slots_) slot->RequestStop();
}

absl::Status Supervisor::Stop(Clock::TimePoint deadline) {
  RequestStop();
  std::unique_lock<std::mutex> lock(mutex_);
  while (running_ > 0) {
    if (clock_.Now() >= deadline) {
      std::vector<std::string> names;
      for (const auto& slot : slots_) {
        if (slot->running()) names.emplace_back(slot->name());
      }
      return absl::DeadlineExceededError(
          absl::StrCat("background workers still running: ", absl::StrJoin(names, ", ")));
    }
    clock_.WaitUntil(lock, ended_cv_, deadline);
  }
  return absl::OkStatus();
}

std::vector<WorkerState> Supervisor::States() const {
  std::vector<WorkerState> states;
  states.reserve(slots_.size());
  for (const auto& slot : slots_) states.push_back(slot->state());
  return states;
}

}  // namespace tenure::background
