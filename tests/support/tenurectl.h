// Runs the real tenurectl as a child process, as a script would. Layer: tests; needs TENURE_BINARY_DIR and
// tenure_cli_objs. Thread-safe.
#pragma once

#include <csignal>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/child_process.h"

namespace tenure::testing {

struct CliRun {
  int status = -1;  // Exit status; -1 if a signal ended it.
  std::string out;
  std::string err;

  std::vector<std::string> lines() const { return absl::StrSplit(out, '\n', absl::SkipEmpty()); }
};

// `script` is for the shell and calls "tenurectl", which talks to `server`. When `stop` is triggered all of it gets
// SIGTERM.
inline CliRun RunScript(const std::string& server, const std::string& script, const std::string& input = "",
                        std::stop_token stop = {}) {
  signal(SIGPIPE, SIG_IGN);
  cli::ChildSpec spec;
  spec.command = absl::StrCat("tenurectl() { ", TENURE_BINARY_DIR, "/bin/tenurectl \"$@\"; }\n", script);
  spec.environment = {{"TENURE_SERVER", server}, {"TENURECTL", TENURE_BINARY_DIR "/bin/tenurectl"}};
  spec.input = input;
  spec.max_output = 64 << 20;
  spec.error_tail = 1 << 20;
  spec.kill_grace = absl::Seconds(30);
  const absl::StatusOr<cli::ChildResult> result = cli::RunChild(spec, std::move(stop));
  if (!result.ok()) return {-1, "", std::string(result.status().message())};
  return {result->signal != 0 ? -1 : result->exit_status, result->output, result->error_tail};
}

// One call: RunTenurectl(server, "queue list --json").
inline CliRun RunTenurectl(const std::string& server, const std::string& arguments, const std::string& input = "") {
  return RunScript(server, absl::StrCat("tenurectl ", arguments), input);
}

}  // namespace tenure::testing
