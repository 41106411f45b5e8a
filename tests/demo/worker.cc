// The worker process: see the header. Layer: tests.
#include "worker.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <sstream>

#include "records.h"
#include "tenure/worker_pool.h"

namespace tenure::demo {
namespace {

using client::JobContext;
using client::Outcome;

void Tell(char what) {
  if (write(STDOUT_FILENO, &what, 1) == 1) return;
  std::perror("cannot report to the demo");
  _exit(1);
}

// Stands for work that takes a while, and can be told to stop.
void Work(JobContext& job, std::chrono::milliseconds duration) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait_for(lock, job.stop_token(), duration, [] { return false; });
}

// The payload is two numbers: when it was sent, and how many milliseconds the work takes.
Outcome Handle(JobContext& job, const RecordWriter& records) {
  int64_t sent = 0, work_ms = 0;
  std::istringstream payload(job.payload().data);
  if (!(payload >> sent >> work_ms)) return client::Discard{"the payload is not two numbers"};
  records.Write(Step::kStarted, job.id(), job.attempt(), sent);
  if (work_ms > 0) {
    Tell(kSlowStarted);
    Work(job, std::chrono::milliseconds(work_ms));
    Tell(kSlowEnded);
    if (job.stop_token().stop_requested()) return client::Cancelled{};
  }
  records.Write(Step::kEnded, job.id(), job.attempt(), sent);
  return client::Complete{};
}

}  // namespace

int RunWorker(const WorkerArguments& arguments) {
  auto records = RecordWriter::Open(arguments.records);
  if (!records.ok()) {
    std::cerr << arguments.name << ": " << records.status().message() << "\n";
    return 1;
  }
  client::ClientOptions client_options;
  client_options.targets = {arguments.server};
  auto connected = client::Client::Connect(client_options);
  if (!connected.ok()) {
    std::cerr << arguments.name << ": " << connected.status() << "\n";
    return 1;
  }

  client::WorkerPoolOptions options;
  options.queues = {{kQueue}};
  options.worker_id = arguments.name;
  options.slots = 32;
  options.prefetch = 48;
  options.lease = kLease;
  options.hooks.settled = [&](const client::SettledEvent& event) {
    if (!event.status.ok() || event.verb != "complete") return;
    records->Write(Step::kSettled, event.job.id, event.job.attempt, 0);
    Tell(kCompleted);
  };
  client::WorkerPool pool(*connected, std::move(options));
  pool.Handle(kKind, [&](JobContext& job) { return Handle(job, *records); });
  const absl::Status status = pool.RunUntilSignal();
  if (status.ok()) return 0;
  std::cerr << arguments.name << ": " << status << "\n";
  return 1;
}

}  // namespace tenure::demo
