// Whether anybody works a queue, for a person who waits in vain. Layer: client/cli. Not thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/cli/context.h"

namespace tenure::cli {

// True if a worker that is alive, as far as one can tell from ListWorkers, takes jobs of `queue`: it holds a lease or
// has claimed within a longest poll and some slack. A worker of so many queues that the daemon does not keep them all
// counts as well.
absl::StatusOr<bool> IsPolled(Context& context, const std::string& queue);

}  // namespace tenure::cli
