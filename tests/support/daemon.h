// The whole daemon for tests: TestDaemon runs it in this process, DaemonProcess runs the real bin/tenured as a child
// that can be killed, stopped and signalled. Both serve on ports of their own choice. Layer: tests. One thread at a
// time.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/app/configuration.h"
#include "server/app/daemon.h"
#include "tests/support/postgres_env.h"

namespace tenure::testing {

struct TestDaemonOptions {
  // Of an existing database, as when several daemons share one; its schema is migrated if need be. Empty: a fresh one.
  std::string database_url;
  // Settings by name, as on the command line without the dashes: {"background", "none"}.
  std::map<std::string, std::string> settings;
  // Tunables: "promoter.batch=5".
  std::vector<std::string> set;
  std::map<std::string, std::string> environment;  // All that it sees.
  bool await_ready = true;
};

class TestDaemon {
 public:
  // Fails the test, and aborts, if the daemon does not start or is not ready within 30 s.
  explicit TestDaemon(const TestDaemonOptions& options = {});
  // Stops it, and drops the database that it made.
  ~TestDaemon();

  app::Daemon& operator*() { return *daemon_; }
  app::Daemon* operator->() { return daemon_.get(); }

  std::string grpc_address() const { return daemon_->grpc_address(); }
  int http_port() const { return daemon_->http_port(); }
  const std::string& database_url() const { return url_; }
  // True once it can serve; false after 30 s.
  bool AwaitReady();
  void Stop();

 private:
  std::unique_ptr<ScopedDatabase> database_;
  std::string url_;
  std::unique_ptr<app::Daemon> daemon_;
};

// The status code of a GET, 0 if nobody answers; the body goes to `body`.
int HttpGet(int port, const std::string& path, std::string* body = nullptr);

struct DaemonProcessOptions {
  std::string binary;                  // TENURE_BINARY_DIR "/bin/tenured".
  std::vector<std::string> arguments;  // After "serve" and the ports' flags.
  std::map<std::string, std::string>
      environment;  // Added to this process's; its own TENURE_ variables are not passed on.
  std::string grpc_listen = "127.0.0.1:0";
  std::string http_listen = "127.0.0.1:0";
};

class DaemonProcess {
 public:
  // Starts it; does not wait.
  explicit DaemonProcess(const DaemonProcessOptions& options);
  // Kills it if it runs, with SIGKILL.
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  // Waits until /readyz says so. False if it ends before, or after `timeout`.
  bool AwaitReady(absl::Duration timeout = absl::Seconds(60));
  // Waits until it serves both ports, ready or not.
  bool AwaitServing(absl::Duration timeout = absl::Seconds(60));
  // Known from AwaitServing or AwaitReady on.
  std::string grpc_address() const { return grpc_address_; }
  int http_port() const { return http_port_; }

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Waits for its end: the exit status, or 128 plus the signal. nullopt if it still runs after `timeout`.
  std::optional<int> Wait(absl::Duration timeout = absl::Seconds(60));
  void Kill();  // SIGKILL, and waits.

  // Waits until `text` stands in its output or its log. False if it ends without, or after `timeout`.
  bool AwaitText(const std::string& text, absl::Duration timeout = absl::Seconds(20));

  // What it wrote so far.
  std::string Output() const;
  std::string Log() const;

 private:
  // Waits until `seen`, which looks at what it wrote, holds. False if it ends without, or at `deadline`.
  bool AwaitWritten(absl::Time deadline, const std::function<bool()>& seen);

  std::string directory_;
  pid_t pid_ = -1;
  int pidfd_ = -1;    // Readable when it has ended.
  int written_ = -1;  // inotify: readable when it has written.
  std::optional<int> status_;
  std::string grpc_address_;
  int http_port_ = 0;
};

}  // namespace tenure::testing
