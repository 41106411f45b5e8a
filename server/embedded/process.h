// Starting and following PostgreSQL's programs: fork and exec without a shell, and a pidfd for every process, so that a
// signal or a wait can never reach a stranger that was given the same pid. Needs Linux 5.3. Layer: embedded. Process is
// thread-safe.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tenure::embedded {

// Owns a file descriptor; -1 is none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { Reset(); }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset();

 private:
  int fd_ = -1;
};

// "what: strerror(error)" with the status code that suits `error`.
absl::Status ErrnoStatus(int error, const std::string& what);

// Whom a program runs as.
struct UserId {
  uid_t uid = 0;
  gid_t gid = 0;
  std::string name;
};

struct Command {
  std::vector<std::string> argv;  // argv[0] is the absolute path of the program.
  std::string working_dir;        // Empty: the caller's.
  int output_fd = -1;             // Takes stdout and stderr; borrowed. -1: they are discarded.
  std::optional<UserId> run_as;   // Needs root. Unset: the caller's user.
  bool dies_with_caller = false;  // SIGKILL when the calling thread ends.
};

class Process {
 public:
  // Starts `command` in a session of its own with a clean environment, no inherited descriptors, default signals and
  // umask 077. PERMISSION_DENIED with a sentence that starts with "cannot enter" if the user may not enter working_dir;
  // otherwise the error of the step that failed. OK means that exec succeeded.
  static absl::StatusOr<std::unique_ptr<Process>> Spawn(const Command& command);

  // A process that someone else started; null if there is none with this pid.
  static std::unique_ptr<Process> Open(pid_t pid);

  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // False once it has ended, also if nobody has waited for it yet.
  bool Running() const { return !WaitForExit(absl::ZeroDuration()); }
  // Waits at most `timeout`. True: it has ended, and is reaped if it was spawned here. Idempotent.
  bool WaitForExit(absl::Duration timeout) const;
  // NOT_FOUND if it has ended.
  absl::Status Signal(int signal) const;
  // True if it was spawned here and ended with exit(0). Meaningful after WaitForExit.
  bool Succeeded() const;
  // How a process that was spawned here ended: "exit status 1", "signal 9", "unknown". For error messages.
  std::string ExitReason() const;

 private:
  Process(pid_t pid, UniqueFd pidfd, bool is_child) : pid_(pid), pidfd_(std::move(pidfd)), is_child_(is_child) {}

  const pid_t pid_;
  const UniqueFd pidfd_;
  const bool is_child_;
  mutable std::atomic<int> wait_status_{-1};
};

// Runs `command` to its end and returns what it wrote. DEADLINE_EXCEEDED (it is killed) after `timeout`; INTERNAL if it
// fails.
absl::StatusOr<std::string> RunForOutput(Command command, absl::Duration timeout);

}  // namespace tenure::embedded
