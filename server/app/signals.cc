// SignalWatch: see the header. Layer: app.
#include "server/app/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "server/base/logging.h"

namespace tenure::app {

SignalWatch::SignalWatch() {
  std::signal(SIGPIPE, SIG_IGN);  // A peer that is gone is an error of the write, not the end of the daemon.
  sigemptyset(&signals_);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals_, signal);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  signal_fd_ = signalfd(-1, &signals_, SFD_CLOEXEC);
  end_fd_ = eventfd(0, EFD_CLOEXEC);
  if (signal_fd_ < 0 || end_fd_ < 0) {
    std::perror("tenured: cannot watch signals");
    std::abort();
  }
  thread_ = std::thread([this] { Run(); });
}

SignalWatch::~SignalWatch() {
  const uint64_t one = 1;
  // Cannot fail: the counter is far from full.
  if (write(end_fd_, &one, sizeof(one)) != sizeof(one)) std::abort();
  thread_.join();
  close(signal_fd_);
  close(end_fd_);
}

void SignalWatch::Run() {
  pollfd fds[] = {{signal_fd_, POLLIN, 0}, {end_fd_, POLLIN, 0}};
  while (true) {
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    if (fds[0].revents == 0 || read(signal_fd_, &info, sizeof(info)) != sizeof(info)) continue;
    if (stop_.stop_requested()) {
      // The embedded PostgreSQL, if there is one, stays: it is in no hurry, and the next start takes it over.
      static constexpr char kText[] = "tenured: second signal, ending at once\n";
      if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) _exit(1);
      _exit(128 + static_cast<int>(info.ssi_signo));
    }
    LogInfo(info.ssi_signo == SIGINT ? "interrupted; a second signal ends at once"
                                     : "asked to stop; a second signal ends at once");
    stop_.request_stop();
  }
}

}  // namespace tenure::app
