// IANA time zones by name, from the system's time zone database. Layer: base. Thread-safe; never throws.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tenure {

// The zone; "UTC" always exists. INVALID_ARGUMENT (without reason or field) whose message states the rule if the name
// is malformed or unknown. A zone is read once in the life of the process, so that news of the database (tzdata) take a
// restart.
absl::StatusOr<absl::TimeZone> LoadZone(std::string_view name);

}  // namespace tenure
