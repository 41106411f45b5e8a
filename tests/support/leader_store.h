// A store of which only the leader leases work, in memory and by the script of a test, for testing what the supervisor
// does in time. Layer: tests. Thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "server/base/status.h"
#include "tests/support/unimplemented_store.h"

namespace tenure::testing {

class LeaderStore : public UnimplementedStore {
 public:
  absl::StatusOr<std::optional<store::Fence>> AcquireLeader(std::string_view worker, int32_t, absl::Duration) override {
    const std::string name(worker);
    const std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
    ++acquire_calls[name];
    if (const auto error = acquire_error.find(name); error != acquire_error.end()) return error->second;
    if (held_elsewhere[name]) return std::optional<store::Fence>();
    return std::optional<store::Fence>(store::Fence{name, ++terms[name]});
  }

  absl::Status RenewLeader(const store::Fence& fence, absl::Duration) override {
    std::function<absl::Status()> scripted;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++renewals[fence.worker];
      changed_.notify_all();
      scripted = renew;
    }
    return scripted ? scripted() : absl::OkStatus();
  }

  absl::Status ReleaseLeader(const store::Fence& fence) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++releases[fence.worker];
    changed_.notify_all();
    return absl::OkStatus();
  }

  absl::Status ReportRun(std::string_view worker, const RunReport& report) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    reports[std::string(worker)].push_back(report);
    changed_.notify_all();
    return absl::OkStatus();
  }

  // Waits, in real time, until `condition` holds; it is called with the lock held. False after 20 s.
  [[nodiscard]] bool Await(const std::function<bool()>& condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), condition);
  }
  // Runs `change` with the lock held.
  void With(const std::function<void()>& change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    change();
    changed_.notify_all();
  }

  static absl::Status TermOver() {
    return MakeError(absl::StatusCode::kFailedPrecondition, "TERM_OVER", "the term is over");
  }

  // Use these inside Await and With only.
  std::map<std::string, int64_t> terms;
  std::map<std::string, bool> held_elsewhere;
  std::map<std::string, absl::Status> acquire_error;
  std::map<std::string, int> acquire_calls, renewals, releases;
  std::map<std::string, std::vector<RunReport>> reports;
  std::function<absl::Status()> renew;

 protected:
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace tenure::testing
