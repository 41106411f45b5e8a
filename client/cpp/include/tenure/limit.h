// Limits of concurrency keys and queues. Public header of tenure::client; no gRPC or protobuf types. Thread-safety:
// values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tenure/types.h"

namespace tenure::client {

// What a limit applies to.
enum class LimitScope {
  kKey = 1,     // The jobs that name this key.
  kPrefix = 2,  // Each key that begins so and has no limit of its own; the longest beginning counts.
  kQueue = 3,   // All jobs of the queue; `key` is empty.
  kTenant = 4,  // A tenant's weight where tenants take turns; `key` is the tenant.
};

// At most `burst` starts at once, and one per `interval` in the long run.
struct RateLimit {
  Duration interval{};  // From 10 us to 24 h.
  int burst = 1;        // From 1 to 1,000,000.
};

struct LimitSpec {
  std::optional<int> max_leased;  // From 0 to 1,000,000 jobs at once. Default: any number.
  std::optional<RateLimit> rate;  // Default: any rate.
  std::optional<int> weight;      // Of a tenant, alone: from 1 to 1,000 turns where others get one.
};

// How a key or a queue stands.
struct LimitUsage {
  int64_t held = 0;     // Admitted jobs, counted up to the limit.
  int64_t waiting = 0;  // Counted up to 1,000.
  std::optional<Duration> paused_for;
  std::optional<Duration> next_start_in;
};

struct Limit {
  std::string queue;
  LimitScope scope = LimitScope::kKey;
  std::string key;
  LimitSpec spec;
  std::optional<LimitUsage> usage;  // From GetLimit, of a key or a queue.
  std::optional<Time> create_time;
  std::optional<Time> update_time;
};

struct LimitPage {
  std::vector<Limit> limits;
  std::string next_page_token;
};

}  // namespace tenure::client
