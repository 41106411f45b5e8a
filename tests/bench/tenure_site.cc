// TenureSite, Daemon and Pools: see the header. Layer: tests (benchmark).
#include "tenure_site.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "postgres_server.h"
#include "progress.h"

namespace tenure::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;

constexpr char kDatabase[] = "bench_tenure";
constexpr auto kStartTimeout = seconds(120);
constexpr auto kStopTimeout = seconds(45);
// Without a completion for so long, jobs are lost or the daemon hangs.
constexpr auto kStalled = seconds(60);

std::string LogTail(const std::string& path) {
  constexpr size_t kLines = 10;
  std::ifstream in(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(in, line); lines.push_back(line)) {
    if (lines.size() == kLines) lines.pop_front();
  }
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, "\n  ", line);
  return text;
}

}  // namespace

std::string PayloadOf(const std::string& text) {
  std::string payload = text;
  payload.resize(kPayloadBytes, '.');
  return payload;
}

client::JobSpec NoopJob(const std::string& queue) {
  client::JobSpec spec;
  spec.queue = queue;
  spec.kind = kKind;
  spec.payload = client::Payload::Bytes(PayloadOf());
  return spec;
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const RunContext& run, const std::string& database_url) {
  demo::ChildCommand command;
  command.argv = {run.options.tenured, "serve",         "--database-url", database_url,   "--migrate", "--grpc-listen",
                  "127.0.0.1:0",       "--http-listen", "127.0.0.1:0",    "--log-format", "text"};
  command.argv.insert(command.argv.end(), run.options.tenured_args.begin(), run.options.tenured_args.end());
  command.stderr_path = run.server.directory() + "/tenured.log";
  command.death_signal = SIGTERM;
  auto child = demo::Child::Spawn(command);
  if (!child.ok()) return child.status();
  std::unique_ptr<Daemon> daemon(new Daemon(*std::move(child), command.stderr_path));
  if (absl::Status ready = daemon->AwaitReady(); !ready.ok()) return ready;
  return daemon;
}

absl::Status Daemon::AwaitReady() {
  static constexpr char kMark[] = " is ready: gRPC on ";
  const auto deadline = SteadyClock::now() + kStartTimeout;
  std::string output;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - SteadyClock::now());
    pollfd wait{child_->output_fd(), POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) == 0) {
      return absl::DeadlineExceededError("tenured was not ready in time" + LogTail(log_));
    }
    if (!child_->ReadOutput(output)) {
      child_->WaitForExit(seconds(5));
      return absl::InternalError(absl::StrCat("tenured did not start: ", child_->HowItEnded(), LogTail(log_)));
    }
    const size_t mark = output.find(kMark);
    const size_t begin = mark + sizeof(kMark) - 1;
    if (mark == std::string::npos || output.find(',', begin) == std::string::npos) continue;
    address_ = output.substr(begin, output.find(',', begin) - begin);
    return absl::OkStatus();
  }
}

Daemon::~Daemon() { Stop().IgnoreError(); }

absl::Status Daemon::Stop() {
  if (stopped_) return absl::OkStatus();
  stopped_ = true;
  child_->Signal(SIGTERM);
  if (!child_->WaitForExit(kStopTimeout)) {
    child_->Signal(SIGKILL);
    child_->WaitForExit(seconds(5));
    return absl::DeadlineExceededError("tenured did not stop and was killed" + LogTail(log_));
  }
  if (child_->Succeeded()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("tenured did not stop cleanly: ", child_->HowItEnded(), LogTail(log_)));
}

absl::StatusOr<client::Client> TenureSite::Connect(const Daemon& daemon) {
  client::ClientOptions options;
  options.targets = {daemon.address()};
  options.connect_timeout = seconds(20);
  return client::Client::Connect(options);
}

absl::StatusOr<std::unique_ptr<TenureSite>> TenureSite::Start(const RunContext& run, std::string database_url) {
  std::unique_ptr<TenureSite> site(new TenureSite(run));
  if (database_url.empty()) {
    auto made = run.server.CreateDatabase(kDatabase);
    if (!made.ok()) return made.status();
    database_url = *made;
  }
  site->database_url_ = database_url;
  auto daemon = Daemon::Start(run, database_url);
  if (!daemon.ok()) return daemon.status();
  site->daemon_ = *std::move(daemon);
  auto connected = Connect(*site->daemon_);
  if (!connected.ok()) return connected.status();
  site->client_ = std::make_unique<client::Client>(*connected);
  return site;
}

absl::Status TenureSite::Fill(int64_t jobs) {
  run_.progress.Say("filling");
  if (absl::Status filled = EnqueueMany(*client_, jobs, 2, 1000); !filled.ok()) return filled;
  auto database = Database::Open(database_url_);
  if (!database.ok()) return database.status();
  if (absl::Status done = database->Execute("vacuum analyze tenure.job"); !done.ok()) return done;
  return run_.server.Checkpoint();
}

absl::Status TenureSite::Finish(int64_t completed) {
  client_.reset();
  if (absl::Status stopped = daemon_->Stop(); !stopped.ok()) return stopped;
  auto database = Database::Open(database_url_);
  if (!database.ok()) return database.status();
  const auto ended = database->Number("select count(*) from tenure.history where state = 6");
  const auto live = database->Number("select count(*) from tenure.job");
  if (!ended.ok()) return ended.status();
  if (!live.ok()) return live.status();
  if (*ended != static_cast<double>(completed) || *live != 0) {
    return absl::DataLossError(
        absl::StrFormat("%d jobs should have completed: %.0f have, %.0f are live", completed, *ended, *live));
  }
  return run_.server.DropDatabase(kDatabase);
}

absl::Status EnqueueMany(client::Client& client, int64_t jobs, int callers, int per_call,
                         const std::function<void(int64_t)>& progress, const std::vector<std::string>& queues) {
  std::atomic<int64_t> next{0}, acknowledged{0};
  std::mutex mutex;
  std::condition_variable changed;
  absl::Status status;  // Guarded by mutex.
  int running = callers;
  std::vector<std::jthread> threads;
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&] {
      std::vector<client::JobSpec> specs(static_cast<size_t>(per_call), NoopJob(queues[0]));
      absl::Status mine;
      while (mine.ok()) {
        const int64_t from = next.fetch_add(per_call);
        if (from >= jobs) break;
        const auto count = static_cast<size_t>(std::min<int64_t>(per_call, jobs - from));
        specs.resize(count);
        for (size_t at = 0; queues.size() > 1 && at < count; ++at) {
          specs[at].queue = queues[(static_cast<size_t>(from) + at) % queues.size()];
        }
        const auto answers = client.EnqueueBatch(specs);
        for (const auto& answer : answers) mine.Update(answer.status());
        acknowledged += static_cast<int64_t>(count);
      }
      std::lock_guard lock(mutex);
      status.Update(mine);
      --running;
      changed.notify_all();
    });
  }
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, milliseconds(100), [&] { return running == 0; })) {
    if (progress) progress(acknowledged);
  }
  return status;
}

absl::StatusOr<CallTimes> TimeCalls(client::Client& client, const std::string& queue, int64_t warm_up,
                                    const std::function<bool(int64_t)>& done) {
  client::ClaimOptions claim;
  claim.worker_id = client::NewWorkerId();
  claim.queues = {{queue}};
  claim.wait = seconds(20);
  const client::JobSpec spec = NoopJob(queue);
  CallTimes times;
  for (int64_t count = -warm_up; count < 0 || !done(count); ++count) {
    const auto start = SteadyClock::now();
    if (absl::Status enqueued = client.Enqueue(spec).status(); !enqueued.ok()) return enqueued;
    const auto enqueued_at = SteadyClock::now();
    const auto claimed = client.Claim(claim);
    if (!claimed.ok()) return claimed.status();
    if (claimed->jobs.empty()) return absl::DataLossError("a claim got no job although there is one");
    const auto claimed_at = SteadyClock::now();
    const auto settled = client.Complete({.lease_token = claimed->jobs[0].lease_token, .result = {}, .follow_ups = {}});
    if (!settled.ok()) return settled.status();
    const auto settled_at = SteadyClock::now();
    if (count < 0) continue;
    const auto ms = [](auto duration) { return std::chrono::duration<double, std::milli>(duration).count(); };
    times.enqueue.push_back(ms(enqueued_at - start));
    times.claim.push_back(ms(claimed_at - enqueued_at));
    times.complete.push_back(ms(settled_at - claimed_at));
  }
  return times;
}

absl::StatusOr<std::unique_ptr<Pools>> Pools::Make(const RunContext& run, const Daemon& daemon,
                                                   const std::vector<std::vector<std::string>>& queues_of_each) {
  std::unique_ptr<Pools> pools(new Pools);
  Pools* const self = pools.get();
  for (const std::vector<std::string>& queues : queues_of_each) {
    auto connected = TenureSite::Connect(daemon);
    if (!connected.ok()) return connected.status();
    client::WorkerPoolOptions options;
    for (const std::string& queue : queues) options.queues.push_back({queue});
    options.slots = run.options.slots;
    options.prefetch = run.options.prefetch;
    options.logger = [](client::LogLevel, std::string_view) {};  // Errors come by the hook.
    options.hooks.settled = [self](const client::SettledEvent& event) {
      if (event.verb != "complete" || !event.status.ok()) return;
      const int64_t count = self->completed_.fetch_add(1, std::memory_order_relaxed) + 1;
      if (count != self->awaited_.load(std::memory_order_relaxed)) return;
      std::lock_guard lock(self->mutex_);
      self->changed_.notify_all();
    };
    options.hooks.error = [self](const client::PoolError& error) {
      std::lock_guard lock(self->mutex_);
      self->last_error_ = error.status;
    };
    pools->pools_.push_back(std::make_unique<client::WorkerPool>(*connected, std::move(options)));
    pools->pools_.back()->Handle(kKind, [self](client::JobContext& job) -> client::Outcome {
      if (self->on_start) self->on_start(job);
      return client::Complete{};
    });
  }
  return pools;
}

Pools::~Pools() { Stop().IgnoreError(); }

void Pools::Start() {
  for (const auto& pool : pools_) {
    threads_.emplace_back([this, &pool = *pool] {
      const absl::Status ended = pool.Run(stop_.get_token());
      std::lock_guard lock(mutex_);
      status_.Update(ended);
      changed_.notify_all();
    });
  }
}

absl::Status Pools::AwaitCompleted(int64_t jobs, Progress& progress) {
  awaited_ = jobs;
  int64_t seen = 0;
  auto moved = SteadyClock::now();
  std::unique_lock lock(mutex_);
  // The notification may come just before awaited_ is set: hence the bound.
  while (!changed_.wait_for(lock, milliseconds(100), [&] { return completed() >= jobs || !status_.ok(); })) {
    progress.Show("completed", completed(), jobs);
    if (completed() != seen) {
      seen = completed();
      moved = SteadyClock::now();
    } else if (SteadyClock::now() - moved > kStalled) {
      return absl::DeadlineExceededError(absl::StrCat("nothing was completed for a minute: ", seen, " of ", jobs,
                                                      " jobs are; the pool's last error: ", last_error_.ToString()));
    }
  }
  return status_;
}

absl::Status Pools::Stop() {
  stop_.request_stop();
  threads_.clear();
  std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace tenure::bench
