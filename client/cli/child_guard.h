// Ends the commands of a tenurectl that was killed. Layer: client/cli. Thread-safe.
//
// A worker that is killed with -9 loses its leases, and its commands must not go on beside the next attempts; but it
// can tell nobody any more, and the kernel's parent-death signal reaches the shell alone, not what the shell started.
// So a small process of its own holds the other end of a pipe: it is told of each process group that begins and ends,
// and when the pipe closes it sends SIGTERM to those that are left, and SIGKILL after a grace.
#pragma once

#include <sys/types.h>

namespace tenure::cli {

class ChildGuard {
 public:
  // The one of this process; made at the first call. If it cannot be made, Began and Ended do nothing.
  static ChildGuard& Get();

  void Began(pid_t group) { Tell(group); }
  void Ended(pid_t group) { Tell(-group); }

 private:
  ChildGuard();
  void Tell(pid_t group);

  int pipe_ = -1;
};

}  // namespace tenure::cli
