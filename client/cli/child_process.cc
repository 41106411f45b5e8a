// A child process behind three pipes, one poll loop. Layer: client/cli. Thread-safe.
//
// The loop sleeps in poll() on the pipes, on a pidfd that tells the child's end, and on an eventfd that the stop_token
// writes to. The child is reaped last: until then its process group id cannot be given to somebody else, so that the
// signals hit the right one.
#include "client/cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/cli/child_guard.h"

namespace tenure::cli {
namespace {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { Close(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

struct Pipe {
  Fd read;
  Fd write;
};

absl::Status SystemError(const char* what) {
  return absl::ResourceExhaustedError(absl::StrCat("cannot start the command: ", what, ": ", std::strerror(errno)));
}

bool OpenPipe(Pipe& pipe) {
  std::array<int, 2> fds{};
  // Close-on-exec from the start: other threads start children, too.
  if (pipe2(fds.data(), O_CLOEXEC) != 0) return false;
  pipe.read = Fd(fds[0]);
  pipe.write = Fd(fds[1]);
  return true;
}

void MakeNonBlocking(const Fd& fd) { fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK); }

// In the child, between fork and exec: only what is safe there after a fork of many threads.
[[noreturn]] void Exec(pid_t parent, int in, int out, int err, char* const* argv, char* const* envp) {
  setpgid(0, 0);
  // A worker that was killed loses its lease; its command must not go on beside the next one. The guard sees to what
  // the shell has started.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) _exit(127);
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve("/bin/sh", argv, envp);
  _exit(127);
}

class Child {
 public:
  Child(const ChildSpec& spec, std::stop_token stop) : spec_(spec), stop_(std::move(stop)) {}

  absl::Status Start();
  ChildResult Wait();

 private:
  void WriteInput();
  // Reads what is there; closes the pipe at its end.
  void ReadOutput();
  void ReadErrors();
  void Terminate();
  int PollTimeout() const;
  // True once nothing is left to wait for.
  bool Done() const;

  const ChildSpec& spec_;
  const std::stop_token stop_;
  pid_t pid_ = -1;
  Fd in_, out_, err_, pidfd_, stop_event_;
  size_t written_ = 0;
  bool exited_ = false;
  bool killed_ = false;
  absl::Time kill_at_ = absl::InfiniteFuture();
  ChildResult result_;
};

absl::Status Child::Start() {
  Pipe in, out, err;
  if (!OpenPipe(in) || !OpenPipe(out) || !OpenPipe(err)) return SystemError("pipe");
  stop_event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_event_.open()) return SystemError("eventfd");

  // All memory that the child needs, before the fork: it must not allocate.
  std::string shell = "/bin/sh", flag = "-c", command = spec_.command;
  std::array<char*, 4> argv = {shell.data(), flag.data(), command.data(), nullptr};
  std::vector<std::string> added;
  added.reserve(spec_.environment.size());
  for (const auto& [name, value] : spec_.environment) added.push_back(absl::StrCat(name, "=", value));
  std::vector<char*> envp;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool replaced = std::any_of(spec_.environment.begin(), spec_.environment.end(), [entry](const auto& pair) {
      return std::strncmp(*entry, pair.first.c_str(), pair.first.size()) == 0 && (*entry)[pair.first.size()] == '=';
    });
    if (!replaced) envp.push_back(*entry);
  }
  for (std::string& entry : added) envp.push_back(entry.data());
  envp.push_back(nullptr);

  ChildGuard& guard = ChildGuard::Get();
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) return SystemError("fork");
  if (pid_ == 0) Exec(parent, in.read.get(), out.write.get(), err.write.get(), argv.data(), envp.data());
  // Both sides set it: whoever comes first, a signal to the group finds it.
  setpgid(pid_, pid_);
  guard.Began(pid_);
  pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_.open()) {
    const absl::Status status = SystemError("pidfd_open");
    kill(-pid_, SIGKILL);
    guard.Ended(pid_);
    waitpid(pid_, nullptr, 0);
    return status;
  }
  in_ = std::move(in.write);
  out_ = std::move(out.read);
  err_ = std::move(err.read);
  MakeNonBlocking(in_);
  MakeNonBlocking(out_);
  MakeNonBlocking(err_);
  return absl::OkStatus();
}

void Child::WriteInput() {
  while (written_ < spec_.input.size()) {
    const ssize_t count = write(in_.get(), spec_.input.data() + written_, spec_.input.size() - written_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) break;  // EPIPE: it does not want the rest.
    written_ += static_cast<size_t>(count);
  }
  in_.Close();
}

void Child::ReadOutput() {
  std::array<char, 65536> buffer{};
  while (out_.open()) {
    const ssize_t count = read(out_.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return out_.Close();
    const size_t keep = std::min(static_cast<size_t>(count), spec_.max_output - result_.output.size());
    result_.output.append(buffer.data(), keep);
    // The rest is read all the same, so that the child does not block on a full pipe.
    if (keep < static_cast<size_t>(count)) result_.output_cut = true;
  }
}

void Child::ReadErrors() {
  std::array<char, 16384> buffer{};
  while (err_.open()) {
    const ssize_t count = read(err_.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return err_.Close();
    result_.error_tail.append(buffer.data(), static_cast<size_t>(count));
    if (result_.error_tail.size() > spec_.error_tail) {
      result_.error_tail.erase(0, result_.error_tail.size() - spec_.error_tail);
    }
  }
}

void Child::Terminate() {
  result_.stopped = true;
  kill(-pid_, SIGTERM);
  kill_at_ = absl::Now() + spec_.kill_grace;
}

int Child::PollTimeout() const {
  if (kill_at_ == absl::InfiniteFuture()) return -1;
  return static_cast<int>(absl::ToInt64Milliseconds(std::max(absl::ZeroDuration(), kill_at_ - absl::Now()))) + 1;
}

bool Child::Done() const {
  if (!exited_) return false;
  // Without a stop, what it wrote before its end has been read. With one, its offspring gets the same grace as itself:
  // as long as somebody holds the pipes, somebody is there.
  return !result_.stopped || killed_ || (!out_.open() && !err_.open());
}

ChildResult Child::Wait() {
  const int stop_event = stop_event_.get();
  {
    const std::stop_callback on_stop(stop_, [stop_event] {
      const uint64_t one = 1;
      // Cannot fail: the counter is far from full. A result that is ignored is a warning, hence the comparison.
      if (write(stop_event, &one, sizeof(one)) < 0) return;
    });
    while (!Done()) {
      // A closed Fd is -1, which poll() skips.
      std::array<pollfd, 5> fds = {pollfd{in_.get(), POLLOUT, 0}, pollfd{out_.get(), POLLIN, 0},
                                   pollfd{err_.get(), POLLIN, 0}, pollfd{exited_ ? -1 : pidfd_.get(), POLLIN, 0},
                                   pollfd{result_.stopped ? -1 : stop_event, POLLIN, 0}};
      if (poll(fds.data(), fds.size(), PollTimeout()) < 0 && errno != EINTR) break;
      // Before the pipes: what was written before the end is then read below.
      if (fds[3].revents != 0) exited_ = true;
      if (fds[0].revents != 0) WriteInput();
      ReadOutput();
      ReadErrors();
      if (fds[4].revents != 0 && !exited_) Terminate();
      if (absl::Now() >= kill_at_ && !killed_) {
        kill(-pid_, SIGKILL);
        killed_ = true;
        kill_at_ = absl::InfiniteFuture();
      }
    }
    // The callback is gone before the eventfd is closed.
  }
  if (result_.stopped) kill(-pid_, SIGKILL);
  // Before it is reaped: then its number may become somebody else's.
  ChildGuard::Get().Ended(pid_);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    result_.signal = WTERMSIG(status);
  } else {
    result_.exit_status = WEXITSTATUS(status);
  }
  return std::move(result_);
}

}  // namespace

absl::StatusOr<ChildResult> RunChild(const ChildSpec& spec, std::stop_token stop) {
  Child child(spec, std::move(stop));
  const absl::Status started = child.Start();
  if (!started.ok()) return started;
  return child.Wait();
}

}  // namespace tenure::cli
