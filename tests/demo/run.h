// One run of the demo: starts everything, watches it, kills a worker half way, counts, cleans up. Layer: tests. One
// thread, which waits on descriptors for everything: signals, what the children write, the producers' and the audit's
// end.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "audit.h"
#include "child.h"
#include "daemon_process.h"
#include "producers.h"
#include "progress.h"
#include "summary.h"

namespace tenure::demo {

struct RunOptions {
  std::string tenured;  // Path of the daemon's program.
  int jobs = 10'000;
};

class Run {
 public:
  // `signal_fd`: a signalfd of the signals that interrupt the demo; blocked in all threads. Borrowed.
  Run(RunOptions options, int signal_fd);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Does it all and prints it. Everything that was started has ended when it returns, and the data are removed, unless
  // it failed. Returns the exit status: 0, 1 if it failed, 128 + the number of the signal that interrupted it.
  int Execute();

 private:
  struct Worker {
    std::string name;
    std::string records;
    std::unique_ptr<Child> child;
    bool open = true;          // Until its stdout ends.
    int64_t slow_in_hand = 0;  // Handlers that take a while, at work now.
  };

  absl::Status MakeDirectory();
  absl::Status StartProcesses();
  absl::Status StartWorker(size_t index);
  absl::Status Work();
  absl::Status Listen(size_t index);
  void KillWhenDue();
  absl::Status OnEvent();
  absl::Status NoteSignal();
  // From the threads: sets the flag and wakes Work.
  void Announce(std::atomic<bool>& flag);
  absl::Status StopSurvivor();
  absl::StatusOr<Summary> Count() const;
  absl::Status RemoveDirectory() const;
  int Report(const absl::Status& status, const std::optional<Summary>& summary);

  const RunOptions options_;
  const int signal_fd_;
  const int event_fd_;
  Progress progress_;
  std::string directory_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::array<Worker, 2> workers_;
  std::unique_ptr<Producers> producers_;
  std::unique_ptr<Audit> audit_;
  std::atomic<bool> produced_ = false;
  std::atomic<bool> audited_ = false;
  int64_t first_sent_ = 0;
  int64_t completed_ = 0;
  int64_t killed_at_ = 0;
  int interrupted_by_ = 0;
};

}  // namespace tenure::demo
