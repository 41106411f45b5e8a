// What every command needs: streams, global options, the connection, and one way to report refusals and usage errors.
// Commands are registered on the CLI11 tree and leave an action here, which App runs after parsing. Layer: client/cli.
// Not thread-safe.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "client/cli/connection.h"
#include "client/cli/errors.h"

namespace tenure::cli {

// Exit statuses, the same for each command.
inline constexpr int kExitDone = 0;
inline constexpr int kExitRefused = 1;      // The daemon refused it, or an item of it.
inline constexpr int kExitUsage = 2;        // Wrong arguments; nothing was asked of the daemon.
inline constexpr int kExitUnreachable = 3;  // No daemon answered.

// The process's standard streams, or a test's.
struct Streams {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool in_is_terminal = false;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
};

class Context {
 public:
  explicit Context(const Streams& streams) : streams_(streams), error_printer_(streams.err) {}

  // Global options, set while the arguments are parsed.
  std::string server = "127.0.0.1:8470";
  absl::Duration timeout = absl::Seconds(10);
  bool json = false;

  std::istream& in() { return streams_.in; }
  std::ostream& out() { return streams_.out; }
  std::ostream& err() { return streams_.err; }
  const Streams& streams() const { return streams_; }

  // Made on first use, with the global options as parsed.
  Connection& connection() {
    if (connection_ == nullptr) connection_ = std::make_unique<Connection>(server, timeout);
    return *connection_;
  }

  // What the parsed command will do; returns an exit status.
  void SetAction(std::function<int()> action) { action_ = std::move(action); }
  int RunAction() { return action_ ? action_() : kExitUsage; }

  // Prints why a call failed and answers the exit status that says so.
  int Report(const absl::Status& status, const std::string& subject = "", const std::string& job_id = "");
  // Prints why one item was refused; the command goes on with the others and ends with kExitRefused.
  int ReportItem(const v1::ItemError& error, const std::string& subject, const std::string& job_id = "");
  // Prints a usage error that only showed when the command ran.
  int ReportUsage(const std::string& message);

 private:
  Streams streams_;
  ErrorPrinter error_printer_;
  std::unique_ptr<Connection> connection_;
  std::function<int()> action_;
};

// The worse of two exit statuses: out of reach over refused over done.
inline int Worse(int a, int b) { return a > b ? a : b; }

}  // namespace tenure::cli
