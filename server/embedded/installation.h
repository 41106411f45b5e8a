// Finding PostgreSQL's programs on this machine. Layer: embedded. Thread-safe: functions and values only.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace tenure::embedded {

inline constexpr int kOldestMajor = 14;

struct Installation {
  int major = 0;
  std::string bin_dir;  // Has initdb and postgres.
};

// The newest PostgreSQL of version 14 or later, or the one of version `needed_major` if given. Looks in `bin_dir` alone
// unless that is empty; then under /usr/lib/postgresql/*/bin (Debian) and /usr/pgsql-*/bin (PGDG on Red Hat), then in
// PATH. FAILED_PRECONDITION, saying what is needed and what is installed, if there is none.
absl::StatusOr<Installation> FindInstallation(const std::string& bin_dir, std::optional<int> needed_major);

}  // namespace tenure::embedded
