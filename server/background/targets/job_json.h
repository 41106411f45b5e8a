// Jobs as they are exported and relayed: JSON with the field names of the API. Layer: background/targets. Thread-safe:
// functions of values.
#pragma once

#include <map>
#include <string>

#include "server/store/types.h"

namespace tenure::background::targets {

// An ended job as one line, without a newline. `queue`: its name.
std::string EndedJobJson(const store::Job& job, const std::string& queue);

// A job as an item of JobService.Enqueue for a peer; only what says how it is to run. `key`: its idempotency key there.
std::string RelayedJobJson(const store::Job& job, const std::string& queue, const std::string& key);

}  // namespace tenure::background::targets
