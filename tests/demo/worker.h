// The demo's worker process: a WorkerPool on the demo's queue. Layer: tests. One call per process.
#pragma once

#include <chrono>
#include <string>

namespace tenure::demo {

inline constexpr char kQueue[] = "demo";
inline constexpr char kKind[] = "demo.work";
// Short, so that what a dead worker held comes back within seconds. 30 s, the default, suits real work better.
inline constexpr auto kLease = std::chrono::seconds(2);

// What a worker tells the demo on its stdout, one byte each; the records have the details.
inline constexpr char kSlowStarted = 's';
inline constexpr char kSlowEnded = 'e';
inline constexpr char kCompleted = 'c';

struct WorkerArguments {
  std::string server;   // HOST:PORT of the daemon.
  std::string name;     // Worker id.
  std::string records;  // Path of its record file.
};

// Works until SIGTERM, finishes what it holds, and returns the exit status: 0 after a clean end.
int RunWorker(const WorkerArguments& arguments);

}  // namespace tenure::demo
