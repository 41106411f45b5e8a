// `tenured serve` with its embedded PostgreSQL, as a child of the demo. Layer: tests. Used from one thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "child.h"

namespace tenure::demo {

class DaemonProcess {
 public:
  // Starts it on free ports of 127.0.0.1, with its data and its log (`log_path`) in `directory`, and returns once it
  // has said that it is ready. CANCELLED if `signal_fd` becomes readable meanwhile; otherwise the error says what the
  // daemon did.
  static absl::StatusOr<std::unique_ptr<DaemonProcess>> Start(const std::string& program, const std::string& directory,
                                                              int signal_fd);
  // Stop, if it was not called.
  ~DaemonProcess();

  // HOST:PORT of its gRPC port.
  const std::string& address() const { return address_; }
  // For poll(): readable when it wrote something or ended.
  int output_fd() const { return child_->output_fd(); }
  // Reads on; false when it has ended.
  bool StillRuns();

  // SIGTERM, and waits until it and its PostgreSQL have ended. If it had to be killed, or had ended by itself,
  // PostgreSQL is stopped here and the error says so. Idempotent.
  absl::Status Stop();

  static std::string LogPath(const std::string& directory) { return directory + "/tenured.log"; }

 private:
  DaemonProcess(std::unique_ptr<Child> child, std::string directory)
      : child_(std::move(child)), directory_(std::move(directory)) {}
  absl::Status AwaitReady(int signal_fd);

  const std::unique_ptr<Child> child_;
  const std::string directory_;
  std::string output_;
  std::string address_;
  bool stopped_ = false;
};

}  // namespace tenure::demo
