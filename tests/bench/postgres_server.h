// The benchmark's own PostgreSQL: the one that tenured starts when it is given no database URL, with the same settings
// (fsync on), in a scratch directory on the disk. Layer: tests (benchmark). One thread, except Stop.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "database.h"
#include "server/embedded/postgres.h"
#include "server/embedded/process.h"

namespace tenure::bench {

class PostgresServer {
 public:
  // Starts it in a new directory below `parent`, which must be on the disk that is to be measured. Servers that an
  // earlier, killed benchmark left there are cleared away. `settings` go beyond the daemon's own, or win over them.
  static absl::StatusOr<std::unique_ptr<PostgresServer>> Start(
      const std::string& parent, const std::vector<std::pair<std::string, std::string>>& settings);
  // Stop.
  ~PostgresServer();

  // A new, empty database; one of that name is dropped first. Ends with a checkpoint, so that none falls due because of
  // what was done before. Returns its URL.
  absl::StatusOr<std::string> CreateDatabase(const std::string& name);
  absl::Status DropDatabase(const std::string& name);
  absl::Status Checkpoint();

  std::string UrlOf(const std::string& database) const { return server_->UrlOf(database); }
  // A session in the database "postgres": for questions about the server, in nobody's database.
  Database& admin() { return *admin_; }
  pid_t postmaster_pid() const { return server_->postmaster_pid(); }
  // For logs.
  const std::string& directory() const { return directory_; }

  // Stops the server and removes the directory. From any thread, also while the others are in use. Idempotent.
  void Stop();

 private:
  PostgresServer() = default;

  std::string directory_;
  embedded::UniqueFd directory_lock_;
  std::unique_ptr<embedded::Postgres> server_;
  std::unique_ptr<Database> admin_;
};

}  // namespace tenure::bench
