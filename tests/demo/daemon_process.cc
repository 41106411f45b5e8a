// DaemonProcess: see the header. Layer: tests.
#include "daemon_process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace tenure::demo {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kStartTimeout = seconds(120);  // initdb on a slow disk included.
constexpr auto kStopTimeout = seconds(45);    // More than the daemon's own grace and PostgreSQL's.

// The address in the line by which the daemon says that it is ready; empty if it has not.
std::string ReadyAddress(const std::string& output) {
  static constexpr char kMark[] = " is ready: gRPC on ";
  const size_t mark = output.find(kMark);
  if (mark == std::string::npos) return "";
  const size_t begin = mark + sizeof(kMark) - 1;
  const size_t end = output.find(',', begin);
  return end == std::string::npos ? "" : output.substr(begin, end - begin);
}

// The last lines of the daemon's log, for people; empty if it has written none.
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

// Ends the PostgreSQL that a daemon left behind in `cluster`. True if there was one.
bool StopOrphan(const fs::path& cluster) {
  std::ifstream in(cluster / "postmaster.pid");
  pid_t pid = 0;
  if (!(in >> pid) || pid <= 1) return false;
  std::string rest, socket_directory;  // The fifth line.
  for (int line = 1; line < 5 && std::getline(in, rest); ++line) continue;
  std::getline(in, socket_directory);
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return false;
  // The file may be stale and its pid another process by now: a postmaster works in its cluster's directory.
  std::error_code error;
  const bool ours = fs::equivalent(fs::path("/proc") / std::to_string(pid) / "cwd", cluster, error) && !error;
  if (ours && syscall(SYS_pidfd_send_signal, fd, SIGQUIT, nullptr, 0) == 0) {
    pollfd end{fd, POLLIN, 0};
    poll(&end, 1, 10'000);
    fs::remove(socket_directory, error);  // If nothing is left in it.
  }
  close(fd);
  return ours;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DaemonProcess>> DaemonProcess::Start(const std::string& program,
                                                                    const std::string& directory, int signal_fd) {
  ChildCommand command;
  command.argv = {program,       "serve",         "--data-dir",  directory + "/data", "--grpc-listen",
                  "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--log-format",      "text"};
  command.stderr_path = LogPath(directory);
  // It then stops its PostgreSQL, too. Best effort: the kernel forgets this when a process changes its user, which the
  // daemon does for moments where it runs as root.
  command.death_signal = SIGTERM;
  auto child = Child::Spawn(command);
  if (!child.ok()) return child.status();
  std::unique_ptr<DaemonProcess> daemon(new DaemonProcess(*std::move(child), directory));
  if (absl::Status ready = daemon->AwaitReady(signal_fd); !ready.ok()) return ready;
  return daemon;
}

absl::Status DaemonProcess::AwaitReady(int signal_fd) {
  const auto deadline = std::chrono::steady_clock::now() + kStartTimeout;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd fds[] = {{child_->output_fd(), POLLIN, 0}, {signal_fd, POLLIN, 0}};
    const int ready = poll(fds, 2, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno != EINTR) return absl::InternalError("poll failed");
    if (ready == 0) {
      return absl::DeadlineExceededError(absl::StrCat("tenured was not ready within ", kStartTimeout.count(), " s"));
    }
    if (fds[1].revents != 0) return absl::CancelledError("interrupted");
    if (!StillRuns())
      return absl::InternalError(
          absl::StrCat("tenured did not start: ", child_->HowItEnded(), LogTail(LogPath(directory_))));
    address_ = ReadyAddress(output_);
    if (!address_.empty()) return absl::OkStatus();
  }
}

bool DaemonProcess::StillRuns() {
  if (child_->ReadOutput(output_)) return true;
  return !child_->WaitForExit(seconds(5));
}

DaemonProcess::~DaemonProcess() { Stop().IgnoreError(); }

absl::Status DaemonProcess::Stop() {
  if (stopped_) return absl::OkStatus();
  stopped_ = true;
  absl::Status status;
  if (child_->ended()) {
    status = absl::InternalError(
        absl::StrCat("tenured ended by itself: ", child_->HowItEnded(), LogTail(LogPath(directory_))));
  } else {
    child_->Signal(SIGTERM);
    if (!child_->WaitForExit(kStopTimeout)) {
      child_->Signal(SIGKILL);
      child_->WaitForExit(seconds(5));
      status = absl::DeadlineExceededError(
          absl::StrCat("tenured did not stop within ", kStopTimeout.count(), " s and was killed"));
    } else if (!child_->Succeeded()) {
      status = absl::InternalError(absl::StrCat("tenured did not stop cleanly: ", child_->HowItEnded()));
    }
  }
  if (StopOrphan(fs::path(directory_) / "data" / "postgres")) {
    status.Update(absl::InternalError("tenured left its PostgreSQL running; it was stopped"));
  }
  return status;
}

}  // namespace tenure::demo
