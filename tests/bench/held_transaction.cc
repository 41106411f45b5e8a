// Scenario held-transaction: the header, and Tenure's contestants. Layer: tests (benchmark).
#include "held_transaction.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "database.h"
#include "held_leases.h"
#include "measure.h"
#include "progress.h"
#include "raw_sql.h"
#include "tenure_site.h"

namespace tenure::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

// So many wait at most, so that the length of the line is not what is measured.
constexpr int64_t kMaxWaiting = 10'000;
constexpr int kProducers = 8;
constexpr int64_t kJobsPerCall = 100;
constexpr char kReplicaQueue[] = "replica", kLeaseQueue[] = "leases";

double SecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// A count's rate from when this is made.
class RateSince {
 public:
  explicit RateSince(const std::function<int64_t()>& count) : count_(count), from_(count()) {}
  double operator()() const { return static_cast<double>(count_() - from_) / SecondsSince(start_); }

 private:
  const std::function<int64_t()>& count_;
  const int64_t from_;
  const SteadyClock::time_point start_ = SteadyClock::now();
};

// A second daemon on the database, with one caller who makes calls to it, one after the other.
class Replica {
 public:
  static absl::StatusOr<std::unique_ptr<Replica>> Start(RunContext& run, const std::string& database_url) {
    const auto start = SteadyClock::now();
    auto daemon = Daemon::Start(run, database_url);
    if (!daemon.ok()) return daemon.status();
    std::unique_ptr<Replica> replica(new Replica(*std::move(daemon), SecondsSince(start)));
    auto client = TenureSite::Connect(*replica->daemon_);
    if (!client.ok()) return client.status();
    replica->caller_ = std::jthread([self = replica.get(), client = *client]() mutable {
      self->times_ =
          TimeCalls(client, kReplicaQueue, 0, [self](int64_t counted) { return counted > 0 && self->stop_; });
    });
    return replica;
  }
  ~Replica() { stop_ = true; }

  // How many jobs it completed.
  absl::StatusOr<int64_t> Finish(Figures& figures) {
    stop_ = true;
    caller_.join();
    if (!times_.ok()) return times_.status();
    figures.Set("replica_start_seconds", start_seconds_);
    figures.Set("replica_claim_ms_p50", Percentile(times_->claim, 50));
    figures.Set("replica_claim_ms_p99", Percentile(times_->claim, 99));
    if (absl::Status stopped = daemon_->Stop(); !stopped.ok()) return stopped;
    return static_cast<int64_t>(times_->claim.size());
  }

 private:
  Replica(std::unique_ptr<Daemon> daemon, double start_seconds)
      : daemon_(std::move(daemon)), start_seconds_(start_seconds) {}

  const std::unique_ptr<Daemon> daemon_;
  const double start_seconds_;
  std::atomic<bool> stop_{false};
  absl::StatusOr<CallTimes> times_ = absl::UnknownError("not measured");  // The caller's until it has ended.
  std::jthread caller_;
};

absl::StatusOr<Figures> TenureHeld(RunContext& run, HeldKind kind) {
  auto site = TenureSite::Start(run);
  if (!site.ok()) return site.status();
  client::Client& client = (*site)->client();
  for (const char* queue : {kQueue, kReplicaQueue}) {
    if (absl::Status made = client.CreateQueue(queue).status(); !made.ok()) return made;
  }
  std::unique_ptr<HeldLeases> leases;
  if (run.options.held_leases > 0) {
    auto taken =
        HeldLeases::Take(client, kLeaseQueue, run.options.held_leases, run.sizes().lease_seconds, run.progress);
    if (!taken.ok()) return taken.status();
    leases = *std::move(taken);
  }
  auto pools = Pools::Make(run, (*site)->daemon(), {{kQueue}});
  if (!pools.ok()) return pools.status();
  const std::function<int64_t()> completed = [&pools = **pools] { return pools.completed(); };
  (*pools)->Start();
  SteadyLoad load(run.options.steady_rate, completed);
  load.Start(kProducers, kJobsPerCall, [&client](int64_t jobs) {
    absl::Status status;
    for (const auto& answer : client.EnqueueBatch(std::vector(static_cast<size_t>(jobs), NoopJob()))) {
      status.Update(answer.status());
    }
    return status;
  });
  std::unique_ptr<Replica> replica;
  Meter meter(run.server, (*site)->daemon().pid());
  if (absl::Status begun = meter.Begin(); !begun.ok()) return begun;
  auto figures = HoldTransaction(run, (*site)->database_url(), "tenure.job", kind, completed, [&]() -> absl::Status {
    if (!run.options.second_replica) return absl::OkStatus();
    auto started = Replica::Start(run, (*site)->database_url());
    if (started.ok()) replica = *std::move(started);
    return started.status();
  });
  if (!figures.ok()) return figures.status();
  if (absl::Status over = meter.End(); !over.ok()) return over;
  meter.ReportLoad(*figures);
  if (absl::Status produced = load.Finish(); !produced.ok()) return produced;
  if (absl::Status done = (*pools)->AwaitCompleted(load.enqueued(), run.progress); !done.ok()) return done;
  if (absl::Status stopped = (*pools)->Stop(); !stopped.ok()) return stopped;
  int64_t jobs = load.enqueued() + run.options.held_leases;
  if (replica) {
    const auto counted = replica->Finish(*figures);
    if (!counted.ok()) return counted.status();
    jobs += *counted;
  }
  if (leases) {
    if (absl::Status kept = leases->Complete(); !kept.ok()) return kept;
    leases.reset();
  }
  figures->note =
      absl::StrFormat("%d slots, prefetch %s; %s; %d leases held and extended beside it%s", run.options.slots,
                      run.options.prefetch_text(),
                      run.options.steady_rate > 0 ? absl::StrFormat("%.0f jobs/s", run.options.steady_rate)
                                                  : "as many jobs as go through",
                      run.options.held_leases, replica ? "; a second replica from the middle of the hold on" : "");
  replica.reset();
  if (absl::Status finished = (*site)->Finish(jobs); !finished.ok()) return finished;
  return figures;
}

}  // namespace

SteadyLoad::SteadyLoad(double rate, std::function<int64_t()> completed)
    : rate_(rate), completed_(std::move(completed)), start_(SteadyClock::now()) {}

SteadyLoad::~SteadyLoad() { Finish().IgnoreError(); }

void SteadyLoad::Start(int threads, int64_t per_call, const std::function<absl::Status(int64_t)>& enqueue) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, per_call, enqueue] {
      const absl::Status mine = Produce(per_call, enqueue);
      std::lock_guard lock(mutex_);
      status_.Update(mine);
    });
  }
}

bool SteadyLoad::Enough() const {
  if (rate_ > 0 && static_cast<double>(asked_) >= rate_ * SecondsSince(start_)) return true;
  return enqueued_ - completed_() >= kMaxWaiting;
}

absl::Status SteadyLoad::Produce(int64_t per_call, const std::function<absl::Status(int64_t)>& enqueue) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      // No signal tells that the line has become shorter; in a millisecond it does by a few jobs.
      while (!stop_ && Enough()) changed_.wait_for(lock, std::chrono::milliseconds(1));
      if (stop_) return absl::OkStatus();
    }
    asked_ += per_call;
    if (absl::Status done = enqueue(per_call); !done.ok()) return done;
    enqueued_ += per_call;
  }
}

absl::Status SteadyLoad::Finish() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  threads_.clear();
  std::lock_guard lock(mutex_);
  return status_;
}

absl::StatusOr<Figures> HoldTransaction(RunContext& run, const std::string& database_url, const std::string& table,
                                        HeldKind kind, const std::function<int64_t()>& completed,
                                        const std::function<absl::Status()>& half_time) {
  auto holder = Database::Open(database_url);
  auto watcher = Database::Open(database_url);
  if (!holder.ok()) return holder.status();
  if (!watcher.ok()) return watcher.status();
  const std::string dead =
      absl::StrCat("select n_dead_tup from pg_stat_all_tables where relid = '", table, "'::regclass");
  if (absl::Status made = holder->Execute("create table public.elsewhere (n int)"); !made.ok()) return made;
  const double settle = run.sizes().settle_seconds, hold = run.sizes().hold_seconds;
  Figures figures;
  run.progress.Wait("warming up", std::min(3.0, settle));
  {
    const RateSince rate(completed);
    run.progress.Wait("before", settle);
    figures.Set("jobs_per_second_before", rate());
  }
  const char* const open = kind == HeldKind::kReading
                               ? "begin isolation level repeatable read; select count(*) from public.elsewhere"
                               : "begin; insert into public.elsewhere values (1)";
  if (absl::Status opened = holder->Execute(open); !opened.ok()) return opened;
  {
    const RateSince rate(completed);
    run.progress.Wait("held, first half", hold / 2);
    if (half_time) {
      if (absl::Status done = half_time(); !done.ok()) return done;
    }
    run.progress.Wait("held, third quarter", hold / 4);
    const RateSince last_quarter(completed);
    run.progress.Wait("held, last quarter", hold / 4);
    figures.Set("jobs_per_second_during", rate());
    figures.Set("jobs_per_second_during_last_quarter", last_quarter());
  }
  const auto dead_at_end = watcher->Number(dead);
  if (!dead_at_end.ok()) return dead_at_end.status();
  figures.Set("dead_tuples", *dead_at_end);
  if (absl::Status closed = holder->Execute("commit"); !closed.ok()) return closed;
  {
    const RateSince rate(completed);
    run.progress.Wait("after", settle);
    figures.Set("jobs_per_second_after", rate());
  }
  const auto dead_after = watcher->Number(dead);
  if (!dead_after.ok()) return dead_after.status();
  figures.Set("dead_tuples_after", *dead_after);
  const double before = *figures.Get("jobs_per_second_before");
  figures.Set("during_to_before", *figures.Get("jobs_per_second_during") / before);
  figures.Set("after_to_before", *figures.Get("jobs_per_second_after") / before);
  return figures;
}

Scenario HeldTransactionScenario(const RunOptions& options) {
  const Sizes& sizes = options.sizes;
  return {
      .name = "held-transaction",
      .what = absl::StrFormat(
          "Jobs are enqueued and worked steadily for %g s, then %g s more while somebody holds a transaction open "
          "that keeps vacuum from removing dead rows, then %g s after its end. Peers drain jobs that wait, the "
          "transaction is opened after a third of them.",
          sizes.settle_seconds, sizes.hold_seconds, sizes.settle_seconds),
      .columns = {{"during_to_before", "during ÷ before", 2, true},
                  {"jobs_per_second_before", "jobs/s before"},
                  {"jobs_per_second_during", "during"},
                  {"jobs_per_second_during_last_quarter", "in its last quarter"},
                  {"jobs_per_second_after", "after"},
                  {"dead_tuples", "dead rows at its end"},
                  {"dead_tuples_after", "and after"},
                  {"replica_start_seconds", "new replica ready after s", 2},
                  {"replica_claim_ms_p99", "its claim p99 ms", 1}},
      .contestants = {{"Tenure", [](RunContext& run) { return TenureHeld(run, HeldKind::kReading); }},
                      {"Tenure, writing elsewhere",
                       [](RunContext& run) { return TenureHeld(run, HeldKind::kWriting); }},
                      {"raw SQL", RawHeld}},
      .peer_scenario = "held",
      .goals = {{.figure = "during_to_before", .against = "", .limit = 0.8},
                {.figure = "during_to_before", .against = "", .limit = 0.8, .contestant = "Tenure, writing elsewhere"}},
      .max_runs = 1,
  };
}

}  // namespace tenure::bench
