// Connections, one per call under way. Layer: store/postgres. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/metrics.h"
#include "server/store/postgres/connection.h"

namespace tenure::store::postgres {

class ConnectionPool {
 public:
  ConnectionPool(std::string conninfo, std::string application_name, int size, Metrics& metrics);
  ~ConnectionPool();

  // Gives the connection back when it goes; a broken one is thrown away.
  class Lease {
   public:
    Lease(ConnectionPool* pool, std::unique_ptr<Connection> connection)
        : pool_(pool), connection_(std::move(connection)) {}
    Lease(Lease&&) = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (connection_) pool_->Return(std::move(connection_));
    }
    Connection& operator*() { return *connection_; }
    Connection* operator->() { return connection_.get(); }

   private:
    ConnectionPool* pool_;
    std::unique_ptr<Connection> connection_;
  };

  // Waits up to `timeout` for a free one. UNAVAILABLE / DATABASE_UNAVAILABLE if PostgreSQL cannot be reached (the
  // refusal is remembered for a moment, so that callers fail fast while it is away) or all are busy.
  absl::StatusOr<Lease> Acquire(absl::Duration timeout);

  // Backends of the open connections with their starts, for the replica's row. Empty behind a pooler.
  std::vector<std::pair<int32_t, absl::Time>> Backends() const;
  bool pooled() const;

 private:
  void Return(std::unique_ptr<Connection> connection);

  const std::string conninfo_;
  const std::string application_name_;
  const int size_;
  Metrics& metrics_;

  mutable std::mutex mu_;
  std::condition_variable freed_;
  std::vector<std::unique_ptr<Connection>> idle_;
  std::vector<std::pair<int32_t, absl::Time>> backends_;
  int open_ = 0;  // Idle, in use or being opened.
  bool pooled_ = false;
  absl::Status last_failure_;
  std::chrono::steady_clock::time_point fail_fast_until_{};
};

}  // namespace tenure::store::postgres
