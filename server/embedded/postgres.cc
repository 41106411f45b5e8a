#include "server/embedded/postgres.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/logging.h"
#include "server/base/status.h"
#include "server/embedded/database.h"
#include "server/embedded/installation.h"
#include "server/embedded/postmaster_file.h"
#include "server/embedded/socket_directory.h"

namespace tenure::embedded {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

constexpr absl::Duration kDefaultGrace = absl::Seconds(10);
// PostgreSQL itself kills what is left five seconds into an immediate shutdown.
constexpr absl::Duration kImmediateGrace = absl::Seconds(10);
constexpr absl::Duration kReadyPoll = absl::Milliseconds(5);

// What a small queue database wants. Options.settings come after these and win.
const Settings& Defaults() {
  static const Settings* defaults = new Settings{
      {"cluster_name", "tenure"},
      {"shared_buffers", "128MB"},
      {"max_connections", "60"},
      // Not minimal: that saves nothing on this load, and pg_basebackup and WAL archiving would be impossible.
      {"wal_level", "replica"},
      {"max_wal_senders", "4"},
      {"log_checkpoints", "off"},
      {"log_line_prefix", "%m [%p] "},
      {"logging_collector", "off"},
      {"log_destination", "stderr"},
      {"timezone", "UTC"},
      {"log_timezone", "UTC"},
      // Statements are short and always the same: compiling them, or spreading them over processes (whose shared memory
      // is 64 MB in a container), only costs.
      {"jit", "off"},
      {"max_parallel_workers_per_gather", "0"},
      {"autovacuum_naptime", "15s"},
  };
  return *defaults;
}

class Deadline {
 public:
  explicit Deadline(absl::Duration timeout) : at_(Clock::Real().Now() + absl::ToChronoNanoseconds(timeout)) {}
  absl::Duration Left() const {
    return std::max(absl::ZeroDuration(), absl::FromChrono(std::chrono::nanoseconds(at_ - Clock::Real().Now())));
  }

 private:
  const Clock::TimePoint at_;
};

// OK once the server says that it takes connections. ABORTED if it ended, DEADLINE_EXCEEDED if it takes too long.
absl::StatusOr<PostmasterFile> AwaitReady(const Process& postmaster, const std::string& cluster,
                                          const Deadline& deadline) {
  for (;;) {
    const std::optional<PostmasterFile> file = ReadPostmasterFile(cluster);
    if (file && file->pid == postmaster.pid() && file->status == "ready") return *file;
    if (postmaster.WaitForExit(std::min(kReadyPoll, deadline.Left()))) {
      return absl::AbortedError(absl::StrCat("PostgreSQL ended while it started (", postmaster.ExitReason(), ")."));
    }
    if (deadline.Left() == absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "PostgreSQL did not become ready in time (state: ", file && !file->status.empty() ? file->status : "unknown",
          "). If it is recovering from a crash, allow it a longer start."));
    }
  }
}

absl::Status StopServer(const Process& postmaster, absl::Duration grace) {
  postmaster.Signal(SIGINT).IgnoreError();
  if (postmaster.WaitForExit(grace)) return absl::OkStatus();
  LogWarn("PostgreSQL does not stop in time; shutting it down at once", {{"pid", absl::StrCat(postmaster.pid())}});
  postmaster.Signal(SIGQUIT).IgnoreError();
  if (postmaster.WaitForExit(kImmediateGrace)) return absl::OkStatus();
  postmaster.Signal(SIGKILL).IgnoreError();
  postmaster.WaitForExit(kImmediateGrace);
  return absl::DeadlineExceededError(
      absl::StrCat("PostgreSQL (process ", postmaster.pid(), ") did not stop and was killed"));
}

bool SetsDurabilityOff(const Settings& settings) {
  return std::any_of(settings.begin(), settings.end(),
                     [](const auto& setting) { return setting.first == "fsync" && setting.second == "off"; });
}

// Takes over the live server of this directory. Null if there is none, or none that can be used: that one is stopped.
absl::StatusOr<std::unique_ptr<Process>> Adopt(const DataDirectory& data, const Deadline& deadline,
                                               PostmasterFile& ready) {
  std::unique_ptr<Process> postmaster = FindPostmaster(data.cluster());
  if (postmaster == nullptr) return postmaster;
  LogInfo("found the PostgreSQL of an earlier daemon", {{"pid", absl::StrCat(postmaster->pid())}});
  const absl::StatusOr<PostmasterFile> file = AwaitReady(*postmaster, data.cluster(), deadline);
  // It was being stopped when its daemon was killed.
  if (absl::IsAborted(file.status())) return std::unique_ptr<Process>();
  TENURE_RETURN_IF_ERROR(file.status());
  const absl::Status status = EnsureDatabase(file->socket_dir, file->port);
  if (status.ok()) {
    ready = *file;
    return postmaster;
  }
  // Somebody cleaned /tmp, say, and the socket is gone.
  LogWarn("that PostgreSQL cannot be used; starting it anew", {{"error", std::string(status.message())}});
  TENURE_RETURN_IF_ERROR(StopServer(*postmaster, kDefaultGrace));
  return std::unique_ptr<Process>();
}

absl::StatusOr<std::unique_ptr<Process>> SpawnServer(const DataDirectory& data, const Installation& installation,
                                                     const std::string& socket_dir, const Settings& extra, int log_fd) {
  Command server;
  server.argv = {installation.bin_dir + "/postgres", "-D", data.cluster()};
  // The last of several values counts, so these cannot be overridden.
  const Settings enforced = {{"listen_addresses", ""},
                             {"port", absl::StrCat(kSocketPort)},
                             {"unix_socket_directories", socket_dir},
                             {"unix_socket_permissions", "0700"}};
  for (const Settings* settings : {&Defaults(), &extra, &enforced}) {
    for (const auto& [name, value] : *settings) {
      server.argv.push_back("-c");
      server.argv.push_back(absl::StrCat(name, "=", value));
    }
  }
  server.working_dir = data.cluster();
  server.output_fd = log_fd;
  server.run_as = data.run_as();
  absl::StatusOr<std::unique_ptr<Process>> process = Process::Spawn(server);
  if (absl::IsPermissionDenied(process.status())) return data.ExplainNoEntry(data.cluster());
  return process;
}

// Starts a server on a directory that has none. Returns it with what it told about itself.
absl::StatusOr<std::unique_ptr<Process>> Launch(const DataDirectory& data, const Options& options,
                                                const Deadline& deadline, PostmasterFile& ready) {
  TENURE_ASSIGN_OR_RETURN(const std::optional<int> major, data.ClusterMajor());
  absl::StatusOr<Installation> installation = FindInstallation(options.bin_dir, major);
  if (!installation.ok()) {
    if (!major) return installation.status();
    return MakeError(installation.status().code(), "POSTGRES_VERSION",
                     absl::StrCat("the cluster in ", data.cluster(), " was made by PostgreSQL ", *major, ": ",
                                  std::string(installation.status().message()),
                                  ". Install that version, or move the data with "
                                  "pg_upgrade or pg_dump."),
                     {{"needed", absl::StrCat(*major)}});
  }
  if (!major) {
    LogInfo("creating the embedded database cluster with initdb: a second, or half a minute on a busy machine",
            {{"directory", data.cluster()}, {"postgres", absl::StrCat(installation->major)}});
    TENURE_RETURN_IF_ERROR(data.CreateCluster(*installation, !SetsDurabilityOff(options.settings), deadline.Left()));
    LogInfo("embedded database cluster created; starting its server", {{"directory", data.cluster()}});
  }
  TENURE_RETURN_IF_ERROR(ClearForStart(data.cluster(), data.owner()));
  TENURE_ASSIGN_OR_RETURN(const std::string socket_dir, PrepareSocketDirectory(data, options.socket_parent));
  TENURE_ASSIGN_OR_RETURN(const UniqueFd log, data.OpenLog());
  const off_t log_start = std::max<off_t>(lseek(log.get(), 0, SEEK_END), 0);
  TENURE_ASSIGN_OR_RETURN(std::unique_ptr<Process> server,
                          SpawnServer(data, *installation, socket_dir, options.settings, log.get()));
  const absl::StatusOr<PostmasterFile> file = AwaitReady(*server, data.cluster(), deadline);
  absl::Status status = file.ok() ? EnsureDatabase(socket_dir, kSocketPort) : file.status();
  if (status.ok()) {
    ready = *file;
    return server;
  }
  StopServer(*server, kDefaultGrace).IgnoreError();
  RemoveSocketDirectory(socket_dir);
  const absl::StatusCode code = absl::IsAborted(status) ? absl::StatusCode::kInternal : status.code();
  return absl::Status(code, absl::StrCat(status.message(), data.LogTail(log_start)));
}

}  // namespace

absl::StatusOr<std::string> FindRunning(const std::string& data_dir) {
  const std::optional<PostmasterFile> file = ReadPostmasterFile(absl::StrCat(data_dir, "/postgres"));
  if (!file || file->status != "ready") {
    return absl::NotFoundError(absl::StrCat("no PostgreSQL runs in ", data_dir, "; its daemon may be starting"));
  }
  return SocketUrl(file->socket_dir, file->port, kDatabase);
}

absl::StatusOr<std::unique_ptr<Postgres>> Postgres::Start(const Options& options) {
  const Deadline deadline(options.start_timeout);
  TENURE_ASSIGN_OR_RETURN(DataDirectory data, DataDirectory::Open(options.data_dir));
  PostmasterFile ready;
  TENURE_ASSIGN_OR_RETURN(std::unique_ptr<Process> postmaster, Adopt(data, deadline, ready));
  bool adopted = postmaster != nullptr;
  if (!adopted) {
    absl::StatusOr<std::unique_ptr<Process>> launched = Launch(data, options, deadline, ready);
    if (launched.ok()) {
      postmaster = std::move(*launched);
    } else {
      // An earlier daemon may have been killed between fork and exec; its server then was not to be seen, and came
      // first.
      TENURE_ASSIGN_OR_RETURN(postmaster, Adopt(data, deadline, ready));
      if (postmaster == nullptr) return launched.status();
      adopted = true;
    }
  }
  LogInfo(adopted ? "embedded PostgreSQL adopted" : "embedded PostgreSQL started",
          {{"pid", absl::StrCat(postmaster->pid())},
           {"data_dir", data.root()},
           {"socket_dir", ready.socket_dir},
           {"log", data.log_path()}});
  return std::unique_ptr<Postgres>(
      new Postgres(std::move(data), std::move(postmaster), ready.socket_dir, ready.port, adopted));
}

Postgres::Postgres(DataDirectory data, std::unique_ptr<Process> postmaster, std::string socket_dir, int port,
                   bool adopted)
    : postmaster_(std::move(postmaster)),
      socket_dir_(std::move(socket_dir)),
      port_(port),
      adopted_(adopted),
      url_(SocketUrl(socket_dir_, port, kDatabase)),
      cluster_dir_(data.cluster()),
      log_path_(data.log_path()),
      data_(std::make_unique<DataDirectory>(std::move(data))) {}

Postgres::~Postgres() {
  const absl::Status status = Stop(kDefaultGrace);
  if (!status.ok()) LogError("stopping the embedded PostgreSQL", {{"error", std::string(status.message())}});
}

std::string Postgres::UrlOf(const std::string& database) const { return SocketUrl(socket_dir_, port_, database); }

absl::Status Postgres::Stop(absl::Duration grace) {
  std::lock_guard lock(stop_mutex_);
  if (data_ == nullptr) return absl::OkStatus();
  const absl::Status status = StopServer(*postmaster_, grace);
  RemoveSocketDirectory(socket_dir_);
  data_.reset();
  return status;
}

}  // namespace tenure::embedded
