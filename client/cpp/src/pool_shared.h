// PoolShared: what a WorkerPool, its run under way and handlers that were abandoned share: options, handlers, counters.
// Layer: client. Counters, Log and Guard are thread-safe; the rest is constant while a run is under way.
#pragma once

#include <atomic>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tenure/worker_pool.h"

namespace tenure::client::internal {

struct PoolCounters {
  std::atomic<int64_t> claims{0}, acquired{0}, replayed{0};
  std::atomic<int64_t> completed{0}, failed{0}, discarded{0}, snoozed{0}, released{0}, settled_elsewhere{0};
  std::atomic<int64_t> lost{0}, run_out{0}, cancelled{0}, refused_settles{0};
  std::atomic<int64_t> unknown_kind{0}, not_admitted{0}, handler_exceptions{0}, abandoned{0};
  std::atomic<int64_t> settle_calls{0}, settle_retries{0}, extend_calls{0}, claim_errors{0}, extend_errors{0};
  std::atomic<int> running{0}, waiting{0}, unsettled{0};
};

inline void Count(std::atomic<int64_t>& counter, int64_t by = 1) { counter.fetch_add(by, std::memory_order_relaxed); }

struct PoolShared {
  PoolShared(Client to, WorkerPoolOptions with) : client(std::move(to)), options(std::move(with)) {}

  void Log(LogLevel level, std::string_view message) const {
    Guard([&] { options.logger(level, message); });
  }
  // Runs what the user gave us; what it throws must not take a gRPC thread down.
  template <typename Function>
  void Guard(Function function) const {
    try {
      function();
    } catch (const std::exception& error) {
      LastResort(error.what());
    } catch (...) {
      LastResort("something that is not a std::exception");
    }
  }
  void Report(std::string_view where, const absl::Status& status) const {
    if (options.hooks.error) Guard([&] { options.hooks.error({where, status}); });
  }
  // Says on standard error that a hook or logger threw: there is nowhere else left to say it.
  static void LastResort(std::string_view what);

  Client client;
  WorkerPoolOptions options;
  absl::flat_hash_map<std::string, Handler> handlers;
  Handler other;
  std::vector<Middleware> middleware;
  // The same handlers inside their middleware; made when a run begins.
  absl::flat_hash_map<std::string, Handler> wrapped;
  Handler wrapped_other;
  std::atomic<bool> running{false};
  PoolCounters counters;
};

}  // namespace tenure::client::internal
