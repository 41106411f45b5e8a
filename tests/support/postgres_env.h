// A real PostgreSQL for the test suites, and a fresh database for each test. The server is started when first asked
// for, in a temporary directory, and shared by the whole process; TENURE_TEST_DATABASE_URL names one to use instead
// (its user must be allowed to create databases). It is gone after the process, also after a kill -9 of it. Works as
// root and as anyone else. Layer: tests. Thread-safe. Every failure ends the process with a message: without a database
// there is nothing to test.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "server/embedded/postgres.h"
#include "tests/support/pgbouncer.h"

namespace tenure::testing {

class PostgresEnv {
 public:
  // The one of this process; starts PostgreSQL on the first call (some seconds). Settings: fsync off,
  // synchronous_commit on, max_prepared_transactions 20, max_connections 200.
  static PostgresEnv& Get();

  // A new database, empty or a copy of `template_url` (one that this class made, and that has no connections now).
  // Returns its URL.
  std::string CreateDatabase(const std::string& template_url = "");
  // Drops it, ending the connections it still has. A URL that was dropped already is fine.
  void DropDatabase(const std::string& url);

  // The database that the others are made from; it has no schema.
  std::string admin_url() const { return admin_url_; }

 private:
  PostgresEnv();
  void StartServer();
  void StartWatcher();
  void Shutdown();
  // One statement on a connection of its own.
  void Execute(const std::string& statement) const;
  std::string UrlOf(const std::string& database) const;

  std::string admin_url_;
  std::string directory_;  // Empty with a server that was given.
  std::unique_ptr<embedded::Postgres> server_;
  embedded::UniqueFd directory_lock_;
  embedded::UniqueFd watcher_pipe_;

  std::mutex mutex_;
  int next_database_ = 0;            // Guarded by mutex_.
  std::set<std::string> databases_;  // Guarded by mutex_.
};

// A database that lives as long as the object.
class ScopedDatabase {
 public:
  explicit ScopedDatabase(const std::string& template_url = "")
      : direct_url_(PostgresEnv::Get().CreateDatabase(template_url)),
        url_(ThroughPooler() ? PooledUrl(direct_url_) : direct_url_) {}
  ~ScopedDatabase() { PostgresEnv::Get().DropDatabase(direct_url_); }
  ScopedDatabase(const ScopedDatabase&) = delete;
  ScopedDatabase& operator=(const ScopedDatabase&) = delete;
  // Through the pooler where the run goes through one (tests/support/pgbouncer.h).
  const std::string& url() const { return url_; }
  const std::string& direct_url() const { return direct_url_; }

 private:
  const std::string direct_url_;
  const std::string url_;
};

}  // namespace tenure::testing
