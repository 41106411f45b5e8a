// Runs one shell command to its end: bytes in, bytes out, stopped on request together with everything it started.
// Layer: client/cli. Thread-safe; blocks the calling thread. The process must ignore SIGPIPE, since a child need not
// read its input.
#pragma once

#include <cstddef>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tenure::cli {

struct ChildSpec {
  std::string command;                                           // For /bin/sh -c.
  std::vector<std::pair<std::string, std::string>> environment;  // Added to this process's.
  std::string input;                                             // Its stdin.
  size_t max_output = 1 << 20;                   // Bytes of stdout that are kept; more are read and dropped.
  size_t error_tail = 4096;                      // Last bytes of stderr that are kept.
  absl::Duration kill_grace = absl::Seconds(5);  // From SIGTERM to SIGKILL.
};

struct ChildResult {
  int exit_status = 0;  // If it exited by itself.
  int signal = 0;       // What killed it; 0 if it exited.
  std::string output;
  bool output_cut = false;  // It wrote more than max_output.
  std::string error_tail;
  bool stopped = false;  // `stop` was triggered while it ran.
};

// Starts the command in a process group of its own and waits for its end. When `stop` is triggered the group gets
// SIGTERM, and SIGKILL after the grace, which also ends what outlived the command. Output of processes that the command
// leaves behind is not waited for. If this process is killed, the group gets SIGTERM, and SIGKILL 5 s later. Errors:
// RESOURCE_EXHAUSTED (no pipe, no process).
absl::StatusOr<ChildResult> RunChild(const ChildSpec& spec, std::stop_token stop);

}  // namespace tenure::cli
