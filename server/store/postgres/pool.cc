#include "server/store/postgres/pool.h"

#include <algorithm>

#include "server/base/logging.h"
#include "server/base/status.h"

namespace tenure::store::postgres {
namespace {

// How long a refusal is answered to others without asking the server again.
constexpr auto kFailFast = std::chrono::milliseconds(200);
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);

}  // namespace

ConnectionPool::ConnectionPool(std::string conninfo, std::string application_name, int size, Metrics& metrics)
    : conninfo_(std::move(conninfo)), application_name_(std::move(application_name)), size_(size), metrics_(metrics) {}

ConnectionPool::~ConnectionPool() = default;

absl::StatusOr<ConnectionPool::Lease> ConnectionPool::Acquire(absl::Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoMicroseconds(timeout);
  std::unique_lock<std::mutex> lock(mu_);
  for (;;) {
    while (!idle_.empty()) {
      std::unique_ptr<Connection> connection = std::move(idle_.back());
      idle_.pop_back();
      if (connection->Healthy()) {
        metrics_.db_connections.Add({{"state", "idle"}}).Set(static_cast<double>(idle_.size()));
        metrics_.db_connections.Add({{"state", "busy"}})
            .Set(static_cast<double>(open_ - static_cast<int>(idle_.size())));
        return Lease(this, std::move(connection));
      }
      --open_;
      std::erase(backends_,
                 std::make_pair(static_cast<int32_t>(connection->backend_pid()), connection->backend_start()));
    }
    if (open_ < size_) {
      if (std::chrono::steady_clock::now() < fail_fast_until_) return last_failure_;
      ++open_;
      lock.unlock();
      auto opened = Connection::Open(conninfo_, application_name_, kConnectTimeout);
      lock.lock();
      if (!opened.ok()) {
        --open_;
        last_failure_ = opened.status();
        fail_fast_until_ = std::chrono::steady_clock::now() + kFailFast;
        Metrics::Add(metrics_.db_errors, {{"class", "connection"}});
        freed_.notify_one();
        return opened.status();
      }
      pooled_ = (*opened)->pooled();
      if (!pooled_) backends_.emplace_back((*opened)->backend_pid(), (*opened)->backend_start());
      metrics_.db_connections.Add({{"state", "busy"}}).Set(static_cast<double>(open_ - static_cast<int>(idle_.size())));
      return Lease(this, std::move(*opened));
    }
    if (freed_.wait_until(lock, deadline) == std::cv_status::timeout && idle_.empty() && open_ >= size_) {
      return MakeError(absl::StatusCode::kUnavailable, "DATABASE_UNAVAILABLE",
                       "all database connections are busy; raise --database-connections if this lasts", {},
                       absl::Milliseconds(500));
    }
  }
}

void ConnectionPool::Return(std::unique_ptr<Connection> connection) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (connection->broken()) {
      --open_;
      std::erase(backends_,
                 std::make_pair(static_cast<int32_t>(connection->backend_pid()), connection->backend_start()));
    } else {
      idle_.push_back(std::move(connection));
    }
    metrics_.db_connections.Add({{"state", "idle"}}).Set(static_cast<double>(idle_.size()));
    metrics_.db_connections.Add({{"state", "busy"}}).Set(static_cast<double>(open_ - static_cast<int>(idle_.size())));
  }
  freed_.notify_one();
}

std::vector<std::pair<int32_t, absl::Time>> ConnectionPool::Backends() const {
  std::lock_guard<std::mutex> lock(mu_);
  return backends_;
}

bool ConnectionPool::pooled() const {
  std::lock_guard<std::mutex> lock(mu_);
  return pooled_;
}

}  // namespace tenure::store::postgres
