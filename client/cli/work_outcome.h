// What a command's end means for its job. Layer: client/cli. Thread-safe: pure functions.
#pragma once

#include <string>

#include "client/cli/child_process.h"
#include "tenure/outcome.h"

namespace tenure::cli {

// Exit statuses with a meaning of their own, after sysexits.h.
inline constexpr int kExitRetry = 75;    // EX_TEMPFAIL: again after the backoff.
inline constexpr int kExitDiscard = 65;  // EX_DATAERR: it can never work.

// 0 completes with stdout as the result (`result_type` is its media type; if empty, text/plain for valid UTF-8 and
// application/octet-stream else). 65 discards. Everything else fails and is retried, with the tail of stderr as the
// error. A command that ended in another way than 0 after it was stopped is Cancelled: the pool knows whether the job
// is lost or given back.
client::Outcome OutcomeOf(const ChildResult& result, const std::string& result_type);

}  // namespace tenure::cli
