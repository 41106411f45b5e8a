// The private PostgreSQL that the daemon starts when it is given no database URL. It belongs to one data directory,
// listens on a unix socket alone, and outlives a daemon that is killed: the next Start on the directory adopts it.
// Linux 5.3 or newer. Layer: embedded (app alone knows it). Thread-safety: Start blocks, from any thread; all methods
// of Postgres are thread-safe.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/embedded/data_directory.h"
#include "server/embedded/process.h"

namespace tenure::embedded {

struct Options {
  std::string data_dir;       // Made if missing; the cluster is in its subdirectory postgres.
  std::string bin_dir;        // Where initdb and postgres are. Empty: the newest that suits, see FindInstallation.
  std::string socket_parent;  // Where the socket's directory is made. Empty: /tmp, else $XDG_RUNTIME_DIR.
  // Server settings beyond, or instead of, the defaults (fsync=off in tests). They reach a server that is started, not
  // one that is adopted. Those that keep the server private (listen_addresses, port, unix_socket_*) cannot be changed.
  std::vector<std::pair<std::string, std::string>> settings;
  absl::Duration start_timeout = absl::Seconds(60);  // For all of Start, crash recovery included.
};

// The URI of the server that runs on this data directory under another process, a daemon at work; for looking, not for
// keeping. NOT_FOUND if none is ready.
absl::StatusOr<std::string> FindRunning(const std::string& data_dir);

class Postgres {
 public:
  // Locks the data directory, makes the cluster if there is none, and returns once the server accepts connections and
  // has a database "tenure". A live server of this directory, left by a daemon that was killed, is adopted; any other
  // leftover of such a daemon is cleared away. Errors say what to do and end with the tail of PostgreSQL's log where
  // that helps:
  //   FAILED_PRECONDITION  another daemon holds the directory (reason DATA_DIR_IN_USE, metadata pid); no PostgreSQL of
  //   the
  //                        major version that the cluster needs is installed; the directory is not Tenure's to use
  //   PERMISSION_DENIED    the directory belongs to someone else, or PostgreSQL's user cannot enter it
  //   INVALID_ARGUMENT     data_dir or socket_parent is not usable
  //   DEADLINE_EXCEEDED    not ready within start_timeout; what was started is stopped again
  //   INTERNAL             initdb or postgres failed
  static absl::StatusOr<std::unique_ptr<Postgres>> Start(const Options& options);

  // Stop() with ten seconds' grace.
  ~Postgres();
  Postgres(const Postgres&) = delete;
  Postgres& operator=(const Postgres&) = delete;

  // URI of the database "tenure", user "tenure" (a superuser), over the unix socket.
  const std::string& url() const { return url_; }
  // The same for another database of this server.
  std::string UrlOf(const std::string& database) const;

  // Fast shutdown: transactions are rolled back, connections closed, a checkpoint is written. If that takes longer than
  // `grace`, an immediate one: the next start then recovers from the WAL, and nothing committed is lost. Releases the
  // data directory. Idempotent. DEADLINE_EXCEEDED if it had to be killed.
  absl::Status Stop(absl::Duration grace);

  pid_t postmaster_pid() const { return postmaster_->pid(); }
  // True if a server of an earlier daemon was taken over.
  bool adopted() const { return adopted_; }
  // False once the postmaster has ended, for whatever reason. (A crash of a backend does not end it.) To go on after an
  // unexpected end: destroy this object and Start again.
  bool running() const { return postmaster_->Running(); }
  // Waits at most `timeout` for the postmaster to end; true if it has. Also returns when another thread calls Stop.
  bool WaitForExit(absl::Duration timeout) const { return postmaster_->WaitForExit(timeout); }

  const std::string& cluster_dir() const { return cluster_dir_; }
  const std::string& log_path() const { return log_path_; }

 private:
  Postgres(DataDirectory data, std::unique_ptr<Process> postmaster, std::string socket_dir, int port, bool adopted);

  const std::unique_ptr<Process> postmaster_;
  const std::string socket_dir_;
  const int port_;
  const bool adopted_;
  const std::string url_;
  const std::string cluster_dir_;
  const std::string log_path_;

  std::mutex stop_mutex_;
  std::unique_ptr<DataDirectory> data_;  // Guarded by stop_mutex_. Holds the lock; null after Stop.
};

}  // namespace tenure::embedded
