// See signal_watch.h. The handler only writes a byte to a pipe; a thread reads it and does what a signal handler may
// not.
#include "signal_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

namespace tenure::client::internal {
namespace {

std::atomic<bool> watching{false};
// Read by the handler.
std::atomic<int> signal_pipe{-1};
std::atomic<int> signals_seen{0};
static_assert(std::atomic<int>::is_always_lock_free);

void OnSignal(int number) {
  const int saved_errno = errno;
  if (signals_seen.fetch_add(1) > 0) _exit(128 + number);
  const char byte = 's';
  // A full pipe would mean that a byte is in it already.
  [[maybe_unused]] const ssize_t written = write(signal_pipe.load(), &byte, 1);
  errno = saved_errno;
}

}  // namespace

struct SignalWatch::State {
  std::stop_source stop;
  int read_end = -1;
  int write_end = -1;
  struct sigaction before_int {};
  struct sigaction before_term {};
  std::thread thread;
};

SignalWatch::SignalWatch(std::unique_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<SignalWatch>> SignalWatch::Install() {
  if (watching.exchange(true)) {
    return absl::FailedPreconditionError(
        "another RunUntilSignal is under way in this process: signals can stop only one");
  }
  auto state = std::make_unique<State>();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    watching = false;
    return absl::InternalError(std::string("pipe2: ") + std::strerror(errno));
  }
  state->read_end = ends[0];
  state->write_end = ends[1];
  // The reading thread may wait; the handler must not.
  fcntl(state->read_end, F_SETFL, fcntl(state->read_end, F_GETFL) & ~O_NONBLOCK);
  signals_seen = 0;
  signal_pipe = state->write_end;
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &state->before_int);
  sigaction(SIGTERM, &action, &state->before_term);
  state->thread = std::thread([raw = state.get()] {
    char byte = 0;
    ssize_t got = 0;
    do {
      got = read(raw->read_end, &byte, 1);
    } while (got < 0 && errno == EINTR);
    if (got == 1 && byte == 's') raw->stop.request_stop();
  });
  return std::unique_ptr<SignalWatch>(new SignalWatch(std::move(state)));
}

SignalWatch::~SignalWatch() {
  sigaction(SIGINT, &state_->before_int, nullptr);
  sigaction(SIGTERM, &state_->before_term, nullptr);
  const char byte = 'q';
  [[maybe_unused]] const ssize_t written = write(state_->write_end, &byte, 1);
  state_->thread.join();
  signal_pipe = -1;
  close(state_->read_end);
  close(state_->write_end);
  watching = false;
}

std::stop_token SignalWatch::stop_token() const { return state_->stop.get_token(); }

}  // namespace tenure::client::internal
