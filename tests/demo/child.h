// A child process of the demo: the daemon or a worker. Its stdout is a pipe to here (what it reports), its stderr a log
// file. Layer: tests. Used from one thread, except Signal.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tenure::demo {

struct ChildCommand {
  std::vector<std::string> argv;  // argv[0] is the program's path.
  std::string stderr_path;        // Appended to; made if missing.
  int death_signal = 0;           // Sent to it if the demo itself is killed.
};

class Child {
 public:
  // Starts it in a process group of its own, so that a Ctrl-C reaches the demo alone, which then stops things in order.
  // TENURE_* variables are not passed on: they would point the daemon at somebody's real database. Call it before any
  // other thread is started. NOT_FOUND if there is no such program.
  static absl::StatusOr<std::unique_ptr<Child>> Spawn(const ChildCommand& command);

  // Kills it if it still runs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // For poll(): readable when it wrote something or ended.
  int output_fd() const { return output_fd_; }
  // Appends what it wrote to `text` without waiting. False when it has closed its stdout, which means that it ended.
  bool ReadOutput(std::string& text);

  // No effect once WaitForExit saw its end.
  void Signal(int signal);
  // True if it ended within `timeout`; reaped then.
  bool WaitForExit(std::chrono::milliseconds timeout);
  bool ended() const { return ended_; }
  // Meaningful when it ended.
  bool Succeeded() const;
  // "exit status 1", "signal 9", "still running".
  std::string HowItEnded() const;

 private:
  Child(pid_t pid, int pid_fd, int output_fd) : pid_(pid), pid_fd_(pid_fd), output_fd_(output_fd) {}

  const pid_t pid_;
  const int pid_fd_;
  const int output_fd_;
  bool ended_ = false;
  int wait_status_ = 0;
};

}  // namespace tenure::demo
