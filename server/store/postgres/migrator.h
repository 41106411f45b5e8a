// Brings the database schema to the version that this daemon needs. Layer: store/postgres. Not thread-safe; several
// processes may migrate at once (a lock lets them do it one after the other).
//
// The migrations are migrations/NNNN_name.{up,down}.sql, embedded in the binary; each runs in one transaction and is
// recorded in tenure.schema_migration. A daemon refuses a schema that is older than it needs and accepts a newer one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tenure::store::postgres {

// The least schema version that the statements of this build work with.
inline constexpr int kRequiredSchema = 8;

class Migrator {
 public:
  explicit Migrator(std::string url) : url_(std::move(url)) {}

  // The last version that this binary knows.
  static int NewestVersion();

  struct Entry {
    int version = 0;
    std::string name;
    std::optional<absl::Time> applied;
    bool known = true;  // False: in the database, but not in this binary (a newer daemon has been here).
  };

  // Applies what is missing, up to `target` (default: all). Returns the versions applied. UNAVAILABLE if the database
  // is away, FAILED_PRECONDITION with PostgreSQL's word if a migration fails (its transaction is rolled back).
  absl::StatusOr<std::vector<int>> Up(std::optional<int> target = std::nullopt);
  // Reverts down to (not including) `target`. INVALID_ARGUMENT if this binary does not know a version that is applied.
  absl::StatusOr<std::vector<int>> Down(int target);
  absl::StatusOr<std::vector<Entry>> Status();

 private:
  std::string url_;
};

}  // namespace tenure::store::postgres
