// Child: see the header. Layer: tests.
#include "child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tenure::demo {
namespace {

absl::Status Errno(const std::string& what) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno)));
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In the forked child, so system calls alone. Returns only if it failed.
void BecomeProgram(const std::vector<char*>& argv, const std::vector<char*>& environment, int in, int out, int err,
                   int death_signal, pid_t parent) {
  if (setpgid(0, 0) != 0) return;
  if (death_signal != 0 && (prctl(PR_SET_PDEATHSIG, death_signal) != 0 || getppid() != parent)) return;
  // Blocked and ignored signals survive exec; the demo reads its own from a descriptor.
  sigset_t none;
  sigemptyset(&none);
  if (sigprocmask(SIG_SETMASK, &none, nullptr) != 0 || signal(SIGPIPE, SIG_DFL) == SIG_ERR) return;
  if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) return;
  execve(argv[0], argv.data(), environment.data());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Spawn(const ChildCommand& command) {
  std::vector<std::string> arguments = command.argv;
  if (access(arguments[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("there is no program ", arguments[0], ": build it first (make build)"));
  }
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::strncmp(*variable, "TENURE_", 7) != 0) variables.emplace_back(*variable);
  }
  const std::vector<char*> argv = Pointers(arguments), environment = Pointers(variables);

  const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int err = open(command.stderr_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  int out[2] = {-1, -1};
  if (in < 0 || err < 0 || pipe2(out, O_CLOEXEC) != 0) return Errno(absl::StrCat("cannot start ", arguments[0]));

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeProgram(argv, environment, in, out[1], err, command.death_signal, parent);
    static constexpr char kText[] = "cannot execute the program\n";
    _exit(write(err, kText, sizeof(kText) - 1) < 0 ? 126 : 127);
  }
  const int fork_error = errno;
  close(in);
  close(err);
  close(out[1]);
  const int pid_fd = pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1;
  if (pid < 0 || pid_fd < 0 || fcntl(out[0], F_SETFL, O_NONBLOCK) != 0) {
    if (pid < 0) errno = fork_error;
    absl::Status status = Errno(absl::StrCat("cannot start ", arguments[0]));
    if (pid > 0) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
    close(out[0]);
    if (pid_fd >= 0) close(pid_fd);
    return status;
  }
  return std::unique_ptr<Child>(new Child(pid, pid_fd, out[0]));
}

Child::~Child() {
  if (!ended_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(pid_fd_);
  close(output_fd_);
}

bool Child::ReadOutput(std::string& text) {
  char buffer[16384];
  while (true) {
    const ssize_t got = read(output_fd_, buffer, sizeof(buffer));
    if (got > 0) {
      text.append(buffer, static_cast<size_t>(got));
    } else if (got == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
}

void Child::Signal(int signal) {
  if (!ended_) kill(pid_, signal);  // Not reaped yet, so the pid is still its own.
}

bool Child::WaitForExit(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::string unread;
  while (!ended_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    // Its output is read on meanwhile: a full pipe would keep it from ending. At its end the descriptor stays readable.
    pollfd fds[] = {{pid_fd_, POLLIN, 0}, {ReadOutput(unread) ? output_fd_ : -1, POLLIN, 0}};
    const int ready = poll(fds, 2, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno != EINTR) return false;
    if (fds[0].revents != 0 && waitpid(pid_, &wait_status_, 0) == pid_) ended_ = true;
    if (ready == 0) return false;
  }
  return true;
}

bool Child::Succeeded() const { return ended_ && WIFEXITED(wait_status_) && WEXITSTATUS(wait_status_) == 0; }

std::string Child::HowItEnded() const {
  if (!ended_) return "still running";
  if (WIFSIGNALED(wait_status_)) return absl::StrCat("signal ", WTERMSIG(wait_status_));
  return absl::StrCat("exit status ", WEXITSTATUS(wait_status_));
}

}  // namespace tenure::demo
