// SIGTERM, SIGINT and SIGHUP on a thread of their own. Layer: app.
#pragma once

#include <csignal>
#include <stop_token>
#include <thread>

namespace tenure::app {

// The first signal makes stop_token() fire; the second ends the process at once, with 128 + its number. Make it before
// any other thread: it blocks the signals in the calling thread, from which all later ones inherit that.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  std::stop_token stop_token() const { return stop_.get_token(); }

 private:
  void Run();

  sigset_t signals_;
  int signal_fd_ = -1;
  int end_fd_ = -1;
  std::stop_source stop_;
  std::thread thread_;
};

}  // namespace tenure::app
