// The database of this daemon: a given one by its URL, or the embedded PostgreSQL, which this starts, watches and
// stops. Layer: app. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/app/configuration.h"
#include "server/embedded/postgres.h"

namespace tenure::app {

class Database {
 public:
  // Starts the embedded PostgreSQL if no URL is configured, which takes seconds; a given one is not touched. Errors are
  // embedded::Postgres::Start's.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const Configuration& configuration);

  // The same for one look at it: an embedded PostgreSQL that a daemon runs at this moment is left with that daemon.
  static absl::StatusOr<std::unique_ptr<Database>> OpenToLook(const Configuration& configuration);

  const std::string& url() const { return url_; }
  // For messages: the URL without its password, or "the embedded PostgreSQL in DIR".
  const std::string& description() const { return description_; }

  // Starts the embedded PostgreSQL anew if it has ended. INTERNAL if it came back under another URL; otherwise the
  // error of the start, and the next call tries again. OK at once when all is well, and for a given database.
  absl::Status Revive();
  // Ends the embedded PostgreSQL. Idempotent.
  absl::Status Stop(absl::Duration grace);

 private:
  Database() = default;

  std::string url_;
  std::string description_;
  embedded::Options options_;
  std::mutex mutex_;
  bool stopped_ = false;  // Guarded by mutex_.
  bool embedded_ = false;
  std::unique_ptr<embedded::Postgres>
      postgres_;  // Guarded by mutex_; null for a given database, or between two starts.
};

}  // namespace tenure::app
