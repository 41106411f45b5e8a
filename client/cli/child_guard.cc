// See child_guard.h. The guard is forked from a process of many threads, so it calls only what is safe in a signal
// handler, and allocates nothing.
#include "client/cli/child_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace tenure::cli {
namespace {

constexpr int kGraceMs = 5'000;
constexpr size_t kMostGroups = 4'096;  // More commands at a time than a worker runs; further ones are not guarded.

[[noreturn]] void Guard(int pipe) {
  setsid();  // Ctrl-C is for the worker, which ends its commands in order.
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) signal(signal_number, SIG_IGN);
  prctl(PR_SET_NAME, "tenurectl-guard");
  // Whatever else was open, sockets and the output of a pipeline, must close when the worker goes.
  if (dup2(pipe, 0) < 0 || syscall(SYS_close_range, 1U, ~0U, 0U) != 0) _exit(1);
  std::array<pid_t, kMostGroups> groups{};
  size_t count = 0;
  pid_t told = 0;
  for (;;) {
    const ssize_t got = read(0, &told, sizeof(told));
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof(told)) break;
    if (told > 0 && count < kMostGroups) groups[count++] = told;
    if (told < 0) {
      pid_t* const end = groups.data() + count;
      pid_t* const found = std::find(groups.data(), end, -told);
      if (found != end) *found = groups[--count];
    }
  }
  if (count == 0) _exit(0);
  for (size_t i = 0; i < count; ++i) kill(-groups[i], SIGTERM);
  poll(nullptr, 0, kGraceMs);
  for (size_t i = 0; i < count; ++i) kill(-groups[i], SIGKILL);
  _exit(0);
}

}  // namespace

ChildGuard& ChildGuard::Get() {
  static auto* const guard = new ChildGuard;
  return *guard;
}

ChildGuard::ChildGuard() {
  std::array<int, 2> fds{};
  if (pipe2(fds.data(), O_CLOEXEC) != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    close(fds[1]);
    Guard(fds[0]);
  }
  close(fds[0]);
  if (child < 0) {
    close(fds[1]);
    return;
  }
  pipe_ = fds[1];
}

void ChildGuard::Tell(pid_t group) {
  // One write is whole; it fails only if the guard has been killed, and then nothing can be told.
  while (pipe_ >= 0 && write(pipe_, &group, sizeof(group)) < 0 && errno == EINTR) {
  }
}

}  // namespace tenure::cli
