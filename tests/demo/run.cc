// Run: see the header. Layer: tests.
#include "run.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker.h"

namespace tenure::demo {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kTimeout = seconds(180);    // For the work, which takes seconds: a machine may be busy.
constexpr auto kWorkerStop = seconds(20);  // More than a pool's grace.
constexpr size_t kSurvivor = 0, kVictim = 1;

constexpr char kHowToRun[] = R"(Run it yourself, each in a terminal of its own:
  make run
  bin/tenurectl work -q demo --exec cat
  bin/tenurectl job enqueue -q demo -k hello '{"name": "world"}' --wait
)";

}  // namespace

Run::Run(RunOptions options, int signal_fd)
    : options_(std::move(options)),
      signal_fd_(signal_fd),
      event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      progress_(options_.jobs) {}

Run::~Run() { close(event_fd_); }

int Run::Execute() {
  absl::Status status = MakeDirectory();
  if (status.ok()) status = StartProcesses();
  if (status.ok()) status = Work();
  if (interrupted_by_ != 0) std::cerr << "\ninterrupted: stopping the workers, the daemon and its PostgreSQL\n";
  if (status.ok()) status = StopSurvivor();
  const bool finished = status.ok();

  // In reverse. Whatever still runs is ended, by force if this run has failed.
  if (producers_) first_sent_ = producers_->first_sent();
  producers_.reset();
  if (!finished) audit_.reset();
  for (Worker& worker : workers_) worker.child.reset();
  if (daemon_) status.Update(daemon_->Stop());

  std::optional<Summary> summary;
  if (finished) {
    if (absl::StatusOr<Summary> counted = Count(); counted.ok()) {
      summary = *std::move(counted);
    } else {
      status.Update(counted.status());
    }
  }
  return Report(status, summary);
}

absl::Status Run::MakeDirectory() {
  std::string pattern = fs::temp_directory_path() / "tenure-demo-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    return absl::InternalError(absl::StrCat("cannot make a directory like ", pattern, ": ", std::strerror(errno)));
  }
  directory_ = pattern;
  // As root, PostgreSQL runs as the user postgres, who must be able to get at its data.
  if (geteuid() == 0 && chmod(directory_.c_str(), 0711) != 0) {
    return absl::InternalError(absl::StrCat("cannot change the mode of ", directory_, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status Run::StartProcesses() {
  progress_.Say("Starting tenured with a PostgreSQL of its own");
  auto daemon = DaemonProcess::Start(options_.tenured, directory_, signal_fd_);
  if (!daemon.ok()) return absl::IsCancelled(daemon.status()) ? NoteSignal() : daemon.status();
  daemon_ = *std::move(daemon);
  for (size_t index = 0; index < workers_.size(); ++index) {
    if (absl::Status status = StartWorker(index); !status.ok()) return status;
  }
  progress_.Say(absl::StrFormat("The daemon serves %s. Two producers enqueue, two workers (pids %d and %d) work",
                                daemon_->address(), workers_[0].child->pid(), workers_[1].child->pid()));
  return absl::OkStatus();
}

absl::Status Run::StartWorker(size_t index) {
  Worker& worker = workers_[index];
  worker.name = absl::StrCat("worker-", index + 1);
  worker.records = absl::StrCat(directory_, "/", worker.name, ".records");
  ChildCommand command;
  command.argv = {fs::read_symlink("/proc/self/exe"), "worker", daemon_->address(), worker.name, worker.records};
  command.stderr_path = absl::StrCat(directory_, "/", worker.name, ".log");
  command.death_signal = SIGKILL;
  auto child = Child::Spawn(command);
  if (!child.ok()) return child.status();
  worker.child = *std::move(child);
  return absl::OkStatus();
}

absl::Status Run::Work() {
  const auto deadline = Progress::Clock::now() + kTimeout;
  progress_.Begin();
  producers_ = std::make_unique<Producers>(daemon_->address(), options_.jobs, [this] { Announce(produced_); });
  const auto output = [](const Worker& worker) { return worker.open ? worker.child->output_fd() : -1; };
  while (!audited_) {
    const auto now = Progress::Clock::now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("not every job had ended after ", kTimeout.count(), " s"));
    }
    pollfd fds[] = {{signal_fd_, POLLIN, 0},
                    {event_fd_, POLLIN, 0},
                    {daemon_->output_fd(), POLLIN, 0},
                    {output(workers_[0]), POLLIN, 0},
                    {output(workers_[1]), POLLIN, 0}};
    const auto wait = std::chrono::ceil<milliseconds>(std::min(progress_.next(), deadline) - now);
    if (poll(fds, std::size(fds), static_cast<int>(std::max<int64_t>(wait.count(), 0))) < 0 && errno != EINTR) {
      return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
    }
    if (fds[0].revents != 0) return NoteSignal();
    if (fds[2].revents != 0 && !daemon_->StillRuns()) return daemon_->Stop();
    for (size_t index = 0; index < workers_.size(); ++index) {
      if (fds[3 + index].revents == 0) continue;
      if (absl::Status status = Listen(index); !status.ok()) return status;
    }
    KillWhenDue();
    if (fds[1].revents != 0) {
      if (absl::Status status = OnEvent(); !status.ok()) return status;
    }
    progress_.Show(producers_->accepted(), completed_);
  }
  // What the killed worker completed without living to see it acknowledged is found by the audit alone.
  progress_.Finish(producers_->accepted(), static_cast<int64_t>(audit_->completed().size()));
  return absl::OkStatus();
}

absl::Status Run::Listen(size_t index) {
  Worker& worker = workers_[index];
  std::string bytes;
  worker.open = worker.child->ReadOutput(bytes);
  worker.slow_in_hand +=
      std::count(bytes.begin(), bytes.end(), kSlowStarted) - std::count(bytes.begin(), bytes.end(), kSlowEnded);
  const int64_t completed = std::count(bytes.begin(), bytes.end(), kCompleted);
  completed_ += completed;
  producers_->NoteCompleted(completed);
  if (worker.open || (index == kVictim && killed_at_ != 0)) return absl::OkStatus();
  worker.child->WaitForExit(seconds(1));
  return absl::InternalError(absl::StrCat(worker.name, " ended in the middle: ", worker.child->HowItEnded()));
}

// Half way, and when the victim has just told that it is in the middle of something.
void Run::KillWhenDue() {
  Worker& victim = workers_[kVictim];
  if (killed_at_ != 0 || completed_ * 2 < options_.jobs || victim.slow_in_hand == 0) return;
  killed_at_ = NowNanos();
  victim.child->Signal(SIGKILL);
  progress_.Say(
      absl::StrFormat("kill -9 %d after %s completed jobs: what that worker held comes back when its leases end",
                      victim.child->pid(), Thousands(completed_)));
}

void Run::Announce(std::atomic<bool>& flag) {
  flag = true;
  const uint64_t one = 1;
  if (write(event_fd_, &one, sizeof(one)) != sizeof(one)) std::abort();  // Cannot fail: the counter is far from full.
}

absl::Status Run::OnEvent() {
  uint64_t count = 0;
  if (read(event_fd_, &count, sizeof(count)) != sizeof(count))
    return absl::InternalError("cannot read the event counter");
  if (audited_) return audit_->status();
  if (audit_ || !produced_) return absl::OkStatus();
  if (absl::Status status = producers_->status(); !status.ok()) return status;
  audit_ = std::make_unique<Audit>(daemon_->address(), producers_->TakeAccepted(),
                                   std::vector{workers_[kSurvivor].records, workers_[kVictim].records},
                                   [this] { Announce(audited_); });
  return absl::OkStatus();
}

absl::Status Run::NoteSignal() {
  signalfd_siginfo info{};
  if (read(signal_fd_, &info, sizeof(info)) != sizeof(info)) return absl::InternalError("cannot read a signal");
  interrupted_by_ = static_cast<int>(info.ssi_signo);
  return absl::CancelledError("interrupted");
}

// A clean end, so that its records are complete.
absl::Status Run::StopSurvivor() {
  Worker& survivor = workers_[kSurvivor];
  survivor.child->Signal(SIGTERM);
  if (survivor.child->WaitForExit(kWorkerStop) && survivor.child->Succeeded()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(survivor.name, " did not stop cleanly: ", survivor.child->HowItEnded()));
}

absl::StatusOr<Summary> Run::Count() const {
  Observed observed;
  observed.accepted = audit_->accepted();
  observed.completed = audit_->completed();
  observed.last_outcome_at = audit_->last_outcome_at();
  observed.first_sent = first_sent_;
  observed.killed_at = killed_at_;
  for (size_t index : {kSurvivor, kVictim}) {
    absl::StatusOr<std::vector<Record>> records = RecordReader(workers_[index].records).ReadNew();
    if (!records.ok()) return records.status();
    (index == kVictim ? observed.killed_worker : observed.surviving_worker) = *std::move(records);
  }
  return Summarize(observed);
}

absl::Status Run::RemoveDirectory() const {
  std::error_code error;
  fs::remove_all(directory_, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot remove ", directory_, ": ", error.message()));
}

int Run::Report(const absl::Status& status, const std::optional<Summary>& summary) {
  std::vector<std::string> failures;
  if (!status.ok() && interrupted_by_ == 0) failures.emplace_back(std::string(status.message()));
  if (summary) {
    for (std::string& failure : summary->Failures(options_.jobs)) failures.push_back(std::move(failure));
  }
  // Before the directory is removed, which takes seconds on some disks.
  if (summary) std::cout << '\n' << ToText(*summary) << std::flush;
  const bool has_logs = fs::exists(DaemonProcess::LogPath(directory_));
  if (!failures.empty() && has_logs) {
    failures.push_back(
        absl::StrCat("see the logs beside the data, which are kept: ", DaemonProcess::LogPath(directory_)));
  } else if (!directory_.empty()) {
    if (absl::Status removed = RemoveDirectory(); !removed.ok()) failures.emplace_back(removed.message());
  }
  if (summary && failures.empty()) std::cout << '\n' << kHowToRun << '\n';
  std::cout << std::flush;
  for (const std::string& failure : failures) std::cerr << "demo: " << failure << '\n';
  if (summary) std::cout << ToJson(*summary) << std::endl;
  if (interrupted_by_ != 0) return 128 + interrupted_by_;
  return failures.empty() && summary ? 0 : 1;
}

}  // namespace tenure::demo
