// TestDaemon and DaemonProcess: see the header. Layer: tests.
#include "tests/support/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/store/postgres/migrator.h"
#include "tests/support/eventually.h"
#include "tests/support/raw_http.h"
#include "tests/support/store_fixture.h"

namespace tenure::testing {
namespace {

// For poll(): rounded up, so that a wait does not end just before its time.
int Milliseconds(absl::Duration duration) {
  return static_cast<int>(
      absl::ToInt64Milliseconds(absl::Ceil(std::max(duration, absl::ZeroDuration()), absl::Milliseconds(1))));
}

[[noreturn]] void Die(const std::string& why) {
  std::cerr << "test daemon: " << why << std::endl;
  std::abort();
}

std::string ReadWhole(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The word after `key` in the last line of `log` that has `event`.
std::string FieldOf(const std::string& log, const std::string& event, const std::string& key) {
  const size_t line = log.rfind(event);
  if (line == std::string::npos) return "";
  const size_t end = log.find('\n', line);
  const size_t at = log.find(key + "=", line);
  // A line that is not whole yet says nothing.
  if (end == std::string::npos || at == std::string::npos || at > end) return "";
  const size_t begin = at + key.size() + 1;
  return log.substr(begin, log.find_first_of(" \n", begin) - begin);
}

}  // namespace

TestDaemon::TestDaemon(const TestDaemonOptions& options) : url_(options.database_url) {
  if (url_.empty()) {
    database_ = std::make_unique<ScopedDatabase>(MigratedTemplate());
    url_ = database_->url();
  } else if (auto migrated = store::postgres::Migrator(url_).Up();
             !migrated.ok() && !absl::IsUnavailable(migrated.status())) {
    Die(std::string(migrated.status().message()));
  }
  app::Given given;
  given.environment = [&options](const char* name) -> const char* {
    const auto found = options.environment.find(name);
    return found == options.environment.end() ? nullptr : found->second.c_str();
  };
  given.flags = options.settings;
  given.flags.emplace("grpc-listen", "127.0.0.1:0");
  given.flags.emplace("http-listen", "127.0.0.1:0");
  given.flags.emplace("shutdown-grace", "5s");
  given.flags["database-url"] = url_;
  given.set = options.set;
  const auto resolved = app::Resolve(given);
  if (!resolved.ok()) Die(std::string(resolved.status().message()));
  auto started = app::Daemon::Start(resolved->configuration);
  if (!started.ok()) Die(std::string(started.status().message()));
  daemon_ = *std::move(started);
  if (options.await_ready && !AwaitReady()) Die("not ready: " + std::string(daemon_->Ready().message()));
}

TestDaemon::~TestDaemon() { Stop(); }

bool TestDaemon::AwaitReady() {
  return Eventually(30, [this] { return daemon_->Ready().ok(); });
}

void TestDaemon::Stop() { EXPECT_EQ(daemon_->Stop(), absl::OkStatus()); }

int HttpGet(int port, const std::string& path, std::string* body) {
  RawHttp http(static_cast<uint16_t>(port));
  if (!http.connected()) return 0;
  const RawReply reply = http.Get(path, "Connection: close\r\n");
  if (body != nullptr) *body = reply.body;
  return reply.status;
}

DaemonProcess::DaemonProcess(const DaemonProcessOptions& options) {
  directory_ = (std::filesystem::temp_directory_path() / "tenured-test-XXXXXX").string();
  if (mkdtemp(directory_.data()) == nullptr) Die("no temporary directory");

  // All is made before the fork: the child of a process with threads may only make system calls.
  std::vector<std::string> arguments = {options.binary, "serve"};
  if (!options.grpc_listen.empty()) arguments.insert(arguments.end(), {"--grpc-listen", options.grpc_listen});
  if (!options.http_listen.empty()) arguments.insert(arguments.end(), {"--http-listen", options.http_listen});
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!absl::StartsWith(*variable, "TENURE_")) environment.emplace_back(*variable);
  }
  for (const auto& [name, value] : options.environment) environment.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  for (std::string& variable : environment) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const int out = open((directory_ + "/out").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  const int err = open((directory_ + "/err").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  written_ = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  for (const char* file : {"/out", "/err"}) {
    if (inotify_add_watch(written_, (directory_ + file).c_str(), IN_MODIFY) < 0) Die("no inotify");
  }

  pid_ = fork();
  if (pid_ < 0) Die("cannot fork");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) _exit(126);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(out);
  close(err);
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (pidfd_ < 0) Die("no pidfd");
}

DaemonProcess::~DaemonProcess() {
  Kill();
  close(pidfd_);
  close(written_);
  std::error_code ignored;  // What is left of a scratch directory does not make a test fail.
  std::filesystem::remove_all(directory_, ignored);
}

bool DaemonProcess::AwaitWritten(absl::Time deadline, const std::function<bool()>& seen) {
  for (;;) {
    // Asked first: what it wrote before its end is there to be seen afterwards.
    const bool ended = Wait(absl::ZeroDuration()).has_value();
    if (seen()) return true;
    const absl::Duration rest = deadline - absl::Now();
    if (ended || rest <= absl::ZeroDuration()) return false;
    pollfd changes[] = {{pidfd_, POLLIN, 0}, {written_, POLLIN, 0}};
    poll(changes, std::size(changes), Milliseconds(rest));
    char events[4096];
    while (read(written_, events, sizeof events) > 0) continue;
  }
}

bool DaemonProcess::AwaitText(const std::string& text, absl::Duration timeout) {
  return AwaitWritten(absl::Now() + timeout, [&] {
    return Output().find(text) != std::string::npos || Log().find(text) != std::string::npos;
  });
}

bool DaemonProcess::AwaitServing(absl::Duration timeout) {
  return AwaitWritten(absl::Now() + timeout, [this] {
    const std::string log = Log();
    grpc_address_ = FieldOf(log, " serving ", "grpc");
    const std::string http = FieldOf(log, " serving ", "http");
    if (grpc_address_.empty() || http.empty()) return false;
    return absl::SimpleAtoi(http.substr(http.rfind(':') + 1), &http_port_) && http_port_ != 0;
  });
}

bool DaemonProcess::AwaitReady(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  if (!AwaitServing(timeout)) return false;
  bool ready = false;
  return Eventually(absl::ToDoubleSeconds(deadline - absl::Now()),
                    [&] {
                      ready = HttpGet(http_port_, "/readyz") == 200;
                      return ready || Wait(absl::ZeroDuration()).has_value();
                    }) &&
         ready;
}

void DaemonProcess::Signal(int signal) const {
  if (!status_) {
    EXPECT_EQ(kill(pid_, signal), 0);
  }
}

std::optional<int> DaemonProcess::Wait(absl::Duration timeout) {
  if (status_) return status_;
  pollfd ended{pidfd_, POLLIN, 0};
  int status = 0;
  if (poll(&ended, 1, Milliseconds(timeout)) == 1 && waitpid(pid_, &status, WNOHANG) == pid_) {
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return status_;
}

void DaemonProcess::Kill() {
  if (Wait(absl::ZeroDuration())) return;
  kill(pid_, SIGKILL);
  Wait(absl::Seconds(30));
}

std::string DaemonProcess::Output() const { return ReadWhole(directory_ + "/out"); }

std::string DaemonProcess::Log() const { return ReadWhole(directory_ + "/err"); }

}  // namespace tenure::testing
