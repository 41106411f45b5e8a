#include "server/embedded/process.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/status.h"

namespace tenure::embedded {
namespace {

// glibc has wrappers for these only since 2.36.
int PidfdOpen(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }
int PidfdSendSignal(int pidfd, int signal) {
  return static_cast<int>(syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

enum class Step : int { kUser, kDirectory, kDescriptors, kExec };

// What the child tells its parent through a pipe that exec closes: nothing if all went well.
struct ChildError {
  Step step;
  int error;
};

// Everything the child needs, made before fork(): in a multi-threaded process it may only call what is
// async-signal-safe.
struct ChildPlan {
  char** argv = nullptr;
  char** envp = nullptr;
  const char* working_dir = nullptr;
  bool switch_user = false;
  uid_t uid = 0;
  gid_t gid = 0;
  bool dies_with_caller = false;
  pid_t parent = 0;
  int input_fd = -1;
  int output_fd = -1;
  int error_fd = -1;
  int fd_limit = 0;
};

[[noreturn]] void FailChild(int error_fd, Step step) {
  const ChildError report{step, errno};
  ssize_t ignored = write(error_fd, &report, sizeof report);
  static_cast<void>(ignored);
  _exit(127);
}

[[noreturn]] void RunChild(const ChildPlan& plan) {
  // Own session: Ctrl-C at the daemon's terminal is for the daemon, which drains before it stops PostgreSQL.
  setsid();
  // Handlers of the daemon must not run here, and an ignored signal would stay ignored over exec.
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) sigaction(number, &action, nullptr);
  umask(077);
  if (plan.switch_user) {
    // Raw system calls: glibc's wrappers signal every thread of the process and take a lock that a thread may have held
    // at the time of fork; here there is but one thread.
    if (syscall(SYS_setgroups, 0, nullptr) != 0 || syscall(SYS_setresgid, plan.gid, plan.gid, plan.gid) != 0 ||
        syscall(SYS_setresuid, plan.uid, plan.uid, plan.uid) != 0) {
      FailChild(plan.error_fd, Step::kUser);
    }
  }
  if (plan.dies_with_caller) {
    // After the change of user, which clears it; the check closes the race with a parent that is already dead.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != plan.parent) _exit(127);
  }
  if (plan.working_dir != nullptr && chdir(plan.working_dir) != 0) FailChild(plan.error_fd, Step::kDirectory);
  // All four are above 3 (see Spawn), so none is overwritten before it is used. The error pipe keeps its CLOEXEC.
  if (dup2(plan.input_fd, 0) < 0 || dup2(plan.output_fd, 1) < 0 || dup2(plan.output_fd, 2) < 0 ||
      dup3(plan.error_fd, 3, O_CLOEXEC) < 0) {
    FailChild(plan.error_fd, Step::kDescriptors);
  }
  // A listening socket or the lock of the data directory that leaked into the postmaster would outlive a killed daemon.
  if (syscall(SYS_close_range, 4U, ~0U, 0U) != 0) {
    for (int fd = 4; fd < plan.fd_limit; ++fd) close(fd);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(plan.argv[0], plan.argv, plan.envp);
  FailChild(3, Step::kExec);
}

// PGPORT, PGOPTIONS, LC_* and the like of the daemon's user must not reach a private PostgreSQL.
std::vector<std::string> CleanEnvironment() {
  std::vector<std::string> environment = {"LC_ALL=C"};
  for (const char* name : {"PATH", "TZ", "HOME", "LD_LIBRARY_PATH"}) {
    if (const char* value = std::getenv(name)) environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// A copy whose number is at least 10, out of the way of 0 to 3.
UniqueFd HighCopy(int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 10)); }

absl::Status Explain(const ChildError& failure, const Command& command) {
  switch (failure.step) {
    case Step::kUser:
      return ErrnoStatus(failure.error, absl::StrCat("cannot switch to user ", command.run_as->name));
    case Step::kDirectory:
      return ErrnoStatus(failure.error, absl::StrCat("cannot enter ", command.working_dir));
    case Step::kDescriptors:
      return ErrnoStatus(failure.error, absl::StrCat("cannot pass descriptors to ", command.argv[0]));
    case Step::kExec:
      break;
  }
  return ErrnoStatus(failure.error, absl::StrCat("cannot execute ", command.argv[0]));
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void UniqueFd::Reset() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

absl::Status ErrnoStatus(int error, const std::string& what) { return absl::ErrnoToStatus(error, what); }

absl::StatusOr<std::unique_ptr<Process>> Process::Spawn(const Command& command) {
  UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) return ErrnoStatus(errno, "cannot open /dev/null");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot make a pipe");
  UniqueFd error_reader(ends[0]);
  UniqueFd error_writer(ends[1]);
  UniqueFd input = HighCopy(null.get());
  UniqueFd output = HighCopy(command.output_fd >= 0 ? command.output_fd : null.get());
  UniqueFd error = HighCopy(error_writer.get());
  error_writer.Reset();
  if (!input.valid() || !output.valid() || !error.valid()) return ErrnoStatus(errno, "cannot copy a descriptor");

  std::vector<std::string> arguments = command.argv;
  std::vector<std::string> environment = CleanEnvironment();
  std::vector<char*> argv = Pointers(arguments);
  std::vector<char*> envp = Pointers(environment);
  ChildPlan plan;
  plan.argv = argv.data();
  plan.envp = envp.data();
  if (!command.working_dir.empty()) plan.working_dir = command.working_dir.c_str();
  if (command.run_as) {
    plan.switch_user = true;
    plan.uid = command.run_as->uid;
    plan.gid = command.run_as->gid;
  }
  plan.dies_with_caller = command.dies_with_caller;
  plan.parent = getpid();
  plan.input_fd = input.get();
  plan.output_fd = output.get();
  plan.error_fd = error.get();
  plan.fd_limit = static_cast<int>(std::clamp<long>(sysconf(_SC_OPEN_MAX), 1024, 1 << 20));

  // Blocked until the child has its own dispositions, so that no handler of the daemon runs in it.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  const int fork_error = errno;
  if (pid == 0) RunChild(plan);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return ErrnoStatus(fork_error, "cannot fork");

  UniqueFd pidfd(PidfdOpen(pid));
  const int pidfd_error = errno;
  error.Reset();
  ChildError failure{};
  ssize_t got;
  do {
    got = read(error_reader.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof failure || !pidfd.valid()) {
    kill(pid, SIGKILL);
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    if (!pidfd.valid())
      return ErrnoStatus(pidfd_error, "pidfd_open (the embedded PostgreSQL needs Linux 5.3 or newer)");
    return Explain(failure, command);
  }
  return std::unique_ptr<Process>(new Process(pid, std::move(pidfd), /*is_child=*/true));
}

std::unique_ptr<Process> Process::Open(pid_t pid) {
  UniqueFd pidfd(PidfdOpen(pid));
  if (!pidfd.valid()) return nullptr;
  return std::unique_ptr<Process>(new Process(pid, std::move(pidfd), /*is_child=*/false));
}

bool Process::WaitForExit(absl::Duration timeout) const {
  const bool forever = timeout == absl::InfiniteDuration();
  const auto deadline =
      Clock::Real().Now() + (forever ? std::chrono::nanoseconds(0) : absl::ToChronoNanoseconds(timeout));
  for (;;) {
    int wait_ms = -1;
    if (!forever) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::Real().Now()).count();
      wait_ms = static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
    }
    pollfd ended{pidfd_.get(), POLLIN, 0};
    const int ready = poll(&ended, 1, wait_ms);
    if (ready > 0) break;
    if (ready == 0 && wait_ms < INT_MAX) return false;
  }
  if (is_child_) {
    // A second caller, or a daemon that ignores SIGCHLD, finds nothing to reap: that is as good.
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) wait_status_ = status;
  }
  return true;
}

absl::Status Process::Signal(int signal) const {
  if (PidfdSendSignal(pidfd_.get(), signal) == 0) return absl::OkStatus();
  if (errno == ESRCH) return absl::NotFoundError(absl::StrCat("process ", pid_, " has ended"));
  return ErrnoStatus(errno, absl::StrCat("cannot signal process ", pid_));
}

bool Process::Succeeded() const {
  const int status = wait_status_;
  return status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string Process::ExitReason() const {
  const int status = wait_status_;
  if (status < 0) return "unknown";
  return WIFEXITED(status) ? absl::StrCat("exit status ", WEXITSTATUS(status))
                           : absl::StrCat("signal ", WTERMSIG(status));
}

absl::StatusOr<std::string> RunForOutput(Command command, absl::Duration timeout) {
  UniqueFd output(memfd_create("output", MFD_CLOEXEC));
  if (!output.valid()) return ErrnoStatus(errno, "cannot make a memory file");
  command.output_fd = output.get();
  TENURE_ASSIGN_OR_RETURN(std::unique_ptr<Process> process, Process::Spawn(command));
  if (!process->WaitForExit(timeout)) {
    process->Signal(SIGKILL).IgnoreError();
    process->WaitForExit(absl::InfiniteDuration());
    return absl::DeadlineExceededError(absl::StrCat(command.argv[0], " did not end in time"));
  }
  std::string text(static_cast<size_t>(std::max<off_t>(lseek(output.get(), 0, SEEK_END), 0)), '\0');
  const ssize_t got = pread(output.get(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (!process->Succeeded()) {
    return absl::InternalError(absl::StrCat(command.argv[0], " failed (", process->ExitReason(), "): ", text));
  }
  return text;
}

}  // namespace tenure::embedded
