// What a handler says about its job when it ends. Public header of tenure::client; plain structs. Thread-safety:
// values.
//
// A handler returns an Outcome:  return Complete{Payload::Json("{}")};  return RetryAfter{30s, "rate limited"};
// or throws one of the same structs from wherever it is:               throw Discard{"no such customer"};
// Any other exception means Fail with the exception's message: the job is tried again after its backoff.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "tenure/types.h"

namespace tenure::client {

// The job is done. `result` is kept with it for whoever waits.
struct Complete {
  std::optional<Payload> result;
};

// This attempt failed: again after the job's backoff, until max_attempts is spent.
struct Fail {
  std::string message;
  std::string type;    // For grouping.
  std::string detail;  // A stack trace, say.
};

// This attempt failed: again after `delay` instead of the backoff. Spends an attempt. At most 30 days.
struct RetryAfter {
  Duration delay{};
  std::string message;
  // An upstream that says "not now" to more than this job: nothing that names one of its concurrency keys starts for so
  // long. At most 24 h.
  std::optional<Duration> pause_key_for;
  std::string pause_key;  // Only this one of its keys. Default: all.
};

// Not now: again after `delay`, without spending an attempt. From 1 ms to 10 years.
struct Snooze {
  Duration delay{};
};

// It can never work: the job becomes a dead letter now.
struct Discard {
  std::string reason;
};

// The handler stopped because its stop_token asked it to: the job was cancelled or its lease lost (then there is
// nothing left to settle), or the pool shuts down (then the job is given back, spending nothing).
struct Cancelled {};

// The handler settled the job itself, inside its own database transaction (tenure.complete): the pool does not settle
// it again.
struct SettledElsewhere {};

using Outcome = std::variant<Complete, Fail, RetryAfter, Snooze, Discard, Cancelled, SettledElsewhere>;

}  // namespace tenure::client
