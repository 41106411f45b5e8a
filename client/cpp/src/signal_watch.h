// SignalWatch: turns the first SIGINT or SIGTERM into a stop request; the second ends the process at once. Layer:
// client. One at a time in a process. Not thread-safe itself; the handlers it installs are async-signal-safe.
#pragma once

#include <memory>
#include <stop_token>

#include "absl/status/statusor.h"

namespace tenure::client::internal {

class SignalWatch {
 public:
  // Installs the handlers. FAILED_PRECONDITION if another watch is there; INTERNAL if the system refuses.
  static absl::StatusOr<std::unique_ptr<SignalWatch>> Install();
  // Puts the handlers back that were there before.
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Triggered by the first signal.
  std::stop_token stop_token() const;

 private:
  struct State;
  explicit SignalWatch(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tenure::client::internal
