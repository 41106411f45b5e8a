// Engines on one database, by the calls of their interface; the answers are waited for. Layer: tests. For tests that
// look at the interface itself; engine_fixture.h has the calls made already.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/base/clock.h"
#include "server/engine/engine.h"
#include "tests/support/eventually.h"
#include "tests/support/store_fixture.h"

namespace tenure::testing {

class EngineFixture : public StoreTest {
 protected:
  // A replica of the daemon, less its RPCs.
  struct Replica {
    std::unique_ptr<store::postgres::PostgresStore> store;
    Metrics metrics;
    std::unique_ptr<engine::Engine> engine;
    ~Replica() {
      if (engine) engine->Stop(Clock::Real().Now() + std::chrono::seconds(5));
    }
  };

  std::unique_ptr<Replica> StartReplica(
      std::string name = "r", const std::function<void(engine::Options&)>& change = [](engine::Options&) {}) {
    auto replica = std::make_unique<Replica>();
    replica->store = OpenStore(6);
    engine::Options options;
    options.replica_name = std::move(name);
    options.version = "test";
    change(options);
    replica->engine = engine::MakeEngine(*replica->store, Clock::Real(), replica->metrics, options);
    replica->engine->Start();
    EXPECT_TRUE(Eventually(10, [&] { return replica->engine->health().database_ok; }))
        << replica->engine->health().database_error;
    return replica;
  }

  static engine::Deadline In(int seconds) { return Clock::Real().Now() + std::chrono::seconds(seconds); }

  // Runs an asynchronous call and waits for its answer.
  template <typename T, typename Fn>
  static absl::StatusOr<T> Await(Fn call) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<T>>>();
    auto future = promise->get_future();
    call([promise](absl::StatusOr<T> answer) { promise->set_value(std::move(answer)); });
    if (future.wait_for(std::chrono::seconds(20)) != std::future_status::ready)
      return absl::DeadlineExceededError("no answer");
    return future.get();
  }

  static std::vector<store::EnqueueOutcome> Enqueue(engine::Engine& engine, int n, const std::string& queue = "q",
                                                    store::NewJob spec = {}) {
    if (spec.kind.empty()) spec.kind = "k";
    std::vector<engine::EnqueueItem> items(static_cast<size_t>(n), engine::EnqueueItem{queue, spec});
    auto outcomes = Await<std::vector<store::EnqueueOutcome>>([&](auto done) { engine.Enqueue(items, In(10), done); });
    EXPECT_TRUE(outcomes.ok()) << outcomes.status();
    return outcomes.ok() ? *outcomes : std::vector<store::EnqueueOutcome>();
  }

  static engine::ClaimCall Call(int jobs, absl::Duration wait = absl::ZeroDuration(), const std::string& queue = "q") {
    engine::ClaimCall call;
    call.worker = "w";
    call.queues = {{queue, 1}};
    call.max_jobs = jobs;
    call.wait = wait;
    return call;
  }

  static absl::StatusOr<engine::ClaimAnswer> Claim(engine::Engine& engine, engine::ClaimCall call) {
    return Await<engine::ClaimAnswer>([&](auto done) { engine.Claim(std::move(call), In(20), done); });
  }

  static std::vector<engine::SettleAnswer> Complete(engine::Engine& engine,
                                                    const std::vector<store::ClaimedJob>& jobs) {
    std::vector<engine::CompleteItem> items;
    for (const auto& job : jobs) items.push_back({job.token, std::nullopt, {}});
    auto answers = Await<std::vector<engine::SettleAnswer>>([&](auto done) { engine.Complete(items, In(10), done); });
    EXPECT_TRUE(answers.ok()) << answers.status();
    return answers.ok() ? *answers : std::vector<engine::SettleAnswer>();
  }
};

}  // namespace tenure::testing
