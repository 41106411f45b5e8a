// Daemon: see the header. Layer: app.
#include "server/app/daemon.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/app/caretaker.h"
#include "server/app/database.h"
#include "server/app/version.h"
#include "server/background/promoter_signal.h"
#include "server/background/registry.h"
#include "server/background/supervisor.h"
#include "server/background/targets/access.h"
#include "server/base/clock.h"
#include "server/base/logging.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/engine/engine.h"
#include "server/http/address.h"
#include "server/http/engine_metrics.h"
#include "server/http/router.h"
#include "server/http/server.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/job_service.h"
#include "server/rpc/json_dispatch.h"
#include "server/rpc/limit_service.h"
#include "server/rpc/move_service.h"
#include "server/rpc/queue_service.h"
#include "server/rpc/schedule_service.h"
#include "server/rpc/server.h"
#include "server/rpc/target_service.h"
#include "server/rpc/worker_service.h"
#include "server/store/postgres/migrator.h"
#include "server/store/postgres/postgres_store.h"

namespace tenure::app {
namespace {

constexpr absl::Duration kDatabaseStopGrace = absl::Seconds(10);

// The error says what to do: the libraries below only say that it failed.
absl::Status ListenFailed(std::string_view flag, const std::string& address, const std::string& why) {
  return MakeError(absl::StatusCode::kUnavailable, "LISTEN_FAILED",
                   absl::StrCat("cannot listen on ", address, ": ", why,
                                ". Stop what uses the port (perhaps another tenured), or name another one: --",
                                absl::string_view(flag.data(), flag.size()), " HOST:PORT"));
}

// Looks whether the address can be had before anything is started: an embedded PostgreSQL takes seconds. Whoever binds
// it in between makes the real attempt fail, with the same error.
absl::Status CheckFree(std::string_view flag, const std::string& listen) {
  TENURE_ASSIGN_OR_RETURN(const http::Address address, http::ParseListenAddress(listen, flag));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(),
                                std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return ListenFailed(flag, listen, gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::OkStatus();  // The family may be switched off; the servers know better.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int bound = bind(fd, found->ai_addr, found->ai_addrlen);
  const int why = errno;
  close(fd);
  if (bound != 0) return ListenFailed(flag, listen, std::strerror(why));
  return absl::OkStatus();
}

// Where a client on this machine finds what listens on `listen`.
std::string Reachable(const std::string& listen, int port) {
  auto address = http::ParseListenAddress(listen, "");
  if (!address.ok()) return listen;
  if (address->host.empty() || address->host == "0.0.0.0") address->host = "127.0.0.1";
  if (address->host == "::") address->host = "::1";
  address->port = static_cast<uint16_t>(port);
  return http::FormatAddress(*address);
}

engine::Options EngineOptions(const Configuration& configuration) {
  engine::Options options;
  options.replica_name = configuration.replica_name;
  for (const background::WorkerEntry& entry : background::AllWorkers())
    options.background_workers.emplace_back(entry.name);
  options.version = std::string(Version());
  // The rest is for background workers, which hold theirs for moments.
  options.database_threads = std::max(1, configuration.database_connections / 2);
  options.create_queues = configuration.create_queues;
  options.notify = configuration.notify;
  return options;
}

store::postgres::PostgresOptions StoreOptions(const Configuration& configuration, const Database& database) {
  store::postgres::PostgresOptions options;
  options.url = database.url();
  options.connections = configuration.database_connections;
  return options;
}

class DaemonImpl : public Daemon {
 public:
  DaemonImpl(const Configuration& configuration, std::unique_ptr<Database> database, bool migrate)
      : configuration_(configuration),
        database_(std::move(database)),
        store_(store::postgres::PostgresStore::Open(StoreOptions(configuration_, *database_), metrics_)),
        engine_(engine::MakeEngine(*store_, clock_, metrics_, EngineOptions(configuration_))),
        promoter_signal_(clock_),
        supervisor_(configuration_.background, WorkerDependencies(), metrics_,
                    [this] { return engine_->replica_id(); }),
        methods_(clock_, metrics_),
        jobs_(*engine_, {configuration_.max_payload_bytes}),
        workers_(*engine_, {configuration_.max_payload_bytes}),
        queues_(*engine_),
        schedules_(*engine_, {configuration_.max_payload_bytes}),
        targets_(*engine_, TargetCheck()),
        moves_(*engine_),
        limits_(*engine_),
        admin_(*engine_),
        json_(methods_),
        engine_metrics_(*engine_, clock_, metrics_),
        caretaker_(*database_, *store_, *engine_, clock_, migrate),
        router_(metrics_, RouterParts()) {
    metrics_.SetVersion(Version());
    jobs_.Register(methods_);
    workers_.Register(methods_);
    queues_.Register(methods_);
    schedules_.Register(methods_);
    targets_.Register(methods_);
    moves_.Register(methods_);
    limits_.Register(methods_);
    admin_.Register(methods_);
    engine_->OnScheduled([this](absl::Duration from_now) { promoter_signal_.Scheduled(from_now); });
  }

  ~DaemonImpl() override {
    if (const absl::Status status = Stop(); !status.ok())
      LogWarn("not stopped in time", {{"what", std::string(status.message())}});
  }

  absl::Status Serve() {
    engine_->Start();
    engine_started_ = true;
    supervisor_.Start();
    supervisor_started_ = true;
    caretaker_.Start();

    rpc::ServerOptions rpc_options;
    rpc_options.listen = configuration_.grpc_listen;
    auto grpc = rpc::Server::Start(rpc_options, methods_, *engine_, clock_);
    if (!grpc.ok())
      return ListenFailed("grpc-listen", configuration_.grpc_listen, std::string(grpc.status().message()));
    grpc_ = *std::move(grpc);

    http::ServerOptions http_options;
    http_options.listen = configuration_.http_listen;
    http_ = std::make_unique<http::HttpServer>(http_options, metrics_,
                                               [this](http::Request request, http::Respond respond) {
                                                 return router_.Handle(std::move(request), std::move(respond));
                                               });
    if (absl::Status started = http_->Start(); !started.ok()) {
      http_.reset();
      return ListenFailed("http-listen", configuration_.http_listen, std::string(started.message()));
    }
    LogInfo("serving", {{"version", std::string(Version())},
                        {"grpc", grpc_address()},
                        {"http", http_address()},
                        {"replica", configuration_.replica_name},
                        {"database", database_->description()}});
    return absl::OkStatus();
  }

  absl::Status Stop() override {
    if (stopped_) return absl::OkStatus();
    stopped_ = true;
    const auto grace = absl::ToChronoNanoseconds(configuration_.shutdown_grace);
    const Clock::TimePoint began = clock_.Now();
    // Calls under way have most of the time; what is left is for the batches that they are in.
    const Clock::TimePoint calls = began + grace * 8 / 10, all = began + grace;
    absl::Status result;

    LogInfo("draining");
    caretaker_.RequestStop();
    supervisor_
        .RequestStop();  // Leases are given back at once, so that another replica takes over before this one is gone.
    if (grpc_) grpc_->Drain();
    if (engine_started_) engine_->Drain();
    if (grpc_) grpc_->Shutdown(absl::FromChrono(std::max(calls - clock_.Now(), Clock::Duration::zero())));
    if (http_) http_->Stop(calls);
    if (supervisor_started_) result.Update(supervisor_.Stop(all));
    if (engine_started_) engine_->Stop(all);
    // PostgreSQL last: whoever still has a connection would see it break.
    result.Update(database_->Stop(kDatabaseStopGrace));
    LogInfo("stopped", {{"after", absl::FormatDuration(absl::FromChrono(clock_.Now() - began))}});
    return result;
  }

  absl::Status Ready() const override { return caretaker_.Ready(); }
  absl::Status Failure() const override { return caretaker_.Failure(); }
  int grpc_port() const override { return grpc_->port(); }
  int http_port() const override { return http_->port(); }
  std::string grpc_address() const override { return Reachable(configuration_.grpc_listen, grpc_port()); }
  std::string http_address() const override { return Reachable(configuration_.http_listen, http_port()); }
  const std::string& database_url() const override { return database_->url(); }
  const std::string& database_description() const override { return database_->description(); }
  engine::Engine& engine() override { return *engine_; }
  store::Store& store() override { return *store_; }
  background::Supervisor& supervisor() override { return supervisor_; }
  Metrics& metrics() override { return metrics_; }

 private:
  background::Dependencies WorkerDependencies() {
    background::Dependencies dependencies;
    dependencies.store = store_.get();
    dependencies.clock = &clock_;
    dependencies.tunables = &configuration_.tunables;
    dependencies.note_ready = [this](std::vector<store::ReadyRange> ranges) { engine_->NoteReady(std::move(ranges)); };
    dependencies.note_gates = [this](const store::GatesByQueue& gates) { engine_->NoteGates(gates); };
    dependencies.promoter_signal = &promoter_signal_;
    dependencies.metrics = &metrics_;
    dependencies.replica = [this] { return engine_->replica_id(); };
    dependencies.target_access = &configuration_.targets;
    return dependencies;
  }

  // A daemon that serves no targets of files cannot tell what those that do may write.
  rpc::TargetService::Check TargetCheck() const {
    const bool serves =
        std::any_of(configuration_.background.begin(), configuration_.background.end(),
                    [](const auto& w) { return w.name == "event-log" || w.name == "export" || w.name == "inventory"; });
    if (!serves) return nullptr;
    return [this](const store::TargetSettings& settings) {
      return background::targets::CheckAccess(settings, configuration_.targets);
    };
  }

  http::Router::Parts RouterParts() {
    http::Router::Parts parts;
    parts.json = [this](http::JsonCall call, http::JsonDone done) -> http::JsonCancel {
      auto handle = json_.Call({std::move(call.path), std::move(call.body), call.timeout, std::move(call.peer)},
                               [done = std::move(done)](rpc::JsonAnswer answer) {
                                 done({answer.http_status, std::move(answer.body), std::move(answer.headers)});
                               });
      // Held by the server until the answer is under way: dropping it says that the answer was delivered.
      return [handle] { handle->Cancel(); };
    };
    parts.health = [this] { return engine_->health(); };
    parts.checks = caretaker_.ReadinessChecks();
    parts.refresh_metrics = [this] { engine_metrics_.Refresh(); };
    return parts;
  }

  // In the order in which they start; each uses only what stands before it.
  Clock& clock_ = Clock::Real();
  Metrics metrics_;
  const Configuration configuration_;
  const std::unique_ptr<Database> database_;
  const std::unique_ptr<store::postgres::PostgresStore> store_;
  const std::unique_ptr<engine::Engine> engine_;
  background::PromoterSignal promoter_signal_;
  background::Supervisor supervisor_;
  rpc::MethodTable methods_;
  rpc::JobService jobs_;
  rpc::WorkerService workers_;
  rpc::QueueService queues_;
  rpc::ScheduleService schedules_;
  rpc::TargetService targets_;
  rpc::MoveService moves_;
  rpc::LimitService limits_;
  rpc::AdminService admin_;
  rpc::JsonDispatcher json_;
  http::EngineMetrics engine_metrics_;
  Caretaker caretaker_;
  http::Router router_;
  std::unique_ptr<rpc::Server> grpc_;
  std::unique_ptr<http::HttpServer> http_;
  bool engine_started_ = false;
  bool supervisor_started_ = false;
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Configuration& configuration) {
  TENURE_RETURN_IF_ERROR(CheckFree("grpc-listen", configuration.grpc_listen));
  TENURE_RETURN_IF_ERROR(CheckFree("http-listen", configuration.http_listen));
  TENURE_ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::Open(configuration));
  // The embedded database is here, so it is migrated here, and a failure ends the start. Any other may be away: the
  // caretaker does it when it comes.
  if (configuration.embedded()) {
    TENURE_RETURN_IF_ERROR(store::postgres::Migrator(database->url()).Up().status());
  }
  auto daemon = std::make_unique<DaemonImpl>(configuration, std::move(database),
                                             configuration.migrate && !configuration.embedded());
  TENURE_RETURN_IF_ERROR(daemon->Serve());
  return daemon;
}

}  // namespace tenure::app
