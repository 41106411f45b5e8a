// The one table of background workers, by name, and the selection of those that this process runs. An explicit table,
// because a linker drops objects of a static library whose only use is to register themselves; a test compares it with
// the folder. Layer: background. Thread-safe.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/background/tunables.h"
#include "server/background/worker.h"

namespace tenure::background {

// All workers, in the order of the table.
std::span<const WorkerEntry> AllWorkers();

// `selection`: "all"; "none" or empty; or names with commas between them, in any order, spaces allowed. The entries
// come in the table's order, each once. INVALID_ARGUMENT that lists the known names if one is unknown (all and none
// stand alone).
absl::StatusOr<std::vector<WorkerEntry>> SelectWorkers(std::string_view selection);

// The tunables of all workers, at their defaults.
Tunables DefaultTunables();

}  // namespace tenure::background
