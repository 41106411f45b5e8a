// Engines on the stores of a fresh database: one is one replica of the daemon, less its RPCs. Layer: tests. Calls block
// until they are answered, and may be made from any thread.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/engine/engine.h"
#include "tests/support/eventually.h"
#include "tests/support/store_fixture.h"

namespace tenure::testing {

inline engine::Deadline In(double seconds) {
  return Clock::Real().Now() + std::chrono::duration_cast<Clock::Duration>(std::chrono::duration<double>(seconds));
}

class Replica {
 public:
  Replica(std::unique_ptr<store::postgres::PostgresStore> on, const std::string& name)
      : Replica(std::move(on), Named(name)) {}
  Replica(std::unique_ptr<store::postgres::PostgresStore> on, engine::Options options) : store(std::move(on)) {
    engine = engine::MakeEngine(*store, Clock::Real(), metrics, std::move(options));
  }
  ~Replica() { engine->Stop(In(5)); }

  // Runs an asynchronous call and waits for its answer.
  template <typename T, typename Fn>
  static absl::StatusOr<T> Await(Fn call) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<T>>>();
    auto future = promise->get_future();
    call([promise](absl::StatusOr<T> answer) { promise->set_value(std::move(answer)); });
    if (future.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      return absl::DeadlineExceededError("the engine did not answer");
    }
    return future.get();
  }

  // True once the replica is registered and reads events.
  bool AwaitHealthy(double seconds = 20) const {
    return Eventually(seconds, [this] { return engine->health().database_ok; });
  }

  absl::StatusOr<std::vector<store::EnqueueOutcome>> Enqueue(const std::string& queue,
                                                             std::vector<store::NewJob> jobs) {
    std::vector<engine::EnqueueItem> items;
    for (store::NewJob& job : jobs) items.push_back({queue, std::move(job)});
    return Await<std::vector<store::EnqueueOutcome>>(
        [&](auto done) { engine->Enqueue(std::move(items), In(20), std::move(done)); });
  }

  absl::StatusOr<engine::ClaimAnswer> Claim(const std::string& queue, int jobs, absl::Duration wait,
                                            absl::Duration lease = absl::Seconds(30), std::string worker = "w") {
    engine::ClaimCall call;
    call.worker = std::move(worker);
    call.queues = {{queue, 1}};
    call.max_jobs = jobs;
    call.wait = wait;
    call.lease = lease;
    return Await<engine::ClaimAnswer>([&](auto done) { engine->Claim(std::move(call), In(40), std::move(done)); });
  }

  absl::StatusOr<std::vector<engine::ExtendAnswer>> Extend(std::vector<store::ExtendItem> items, double within = 20) {
    return Await<std::vector<engine::ExtendAnswer>>(
        [&](auto done) { engine->Extend(std::move(items), In(within), std::move(done)); });
  }
  absl::StatusOr<std::vector<engine::SettleAnswer>> Complete(std::vector<engine::CompleteItem> items,
                                                             double within = 20) {
    return Await<std::vector<engine::SettleAnswer>>(
        [&](auto done) { engine->Complete(std::move(items), In(within), std::move(done)); });
  }
  absl::StatusOr<std::vector<engine::SettleAnswer>> Fail(std::vector<store::FailItem> items, double within = 20) {
    return Await<std::vector<engine::SettleAnswer>>(
        [&](auto done) { engine->Fail(std::move(items), In(within), std::move(done)); });
  }
  absl::StatusOr<std::vector<engine::SettleAnswer>> Release(std::vector<store::GiveBackItem> items,
                                                            double within = 20) {
    return Await<std::vector<engine::SettleAnswer>>(
        [&](auto done) { engine->Release(std::move(items), In(within), std::move(done)); });
  }
  absl::StatusOr<std::vector<engine::SettleAnswer>> Snooze(std::vector<store::GiveBackItem> items, double within = 20) {
    return Await<std::vector<engine::SettleAnswer>>(
        [&](auto done) { engine->Snooze(std::move(items), In(within), std::move(done)); });
  }
  absl::StatusOr<std::vector<engine::CancelAnswer>> Cancel(std::vector<store::JobId> ids, double within = 20) {
    return Await<std::vector<engine::CancelAnswer>>(
        [&](auto done) { engine->Cancel(std::move(ids), "a test", In(within), std::move(done)); });
  }

  std::unique_ptr<store::postgres::PostgresStore> store;
  Metrics metrics;
  std::unique_ptr<engine::Engine> engine;

 private:
  static engine::Options Named(const std::string& name) {
    engine::Options options;
    options.replica_name = name;
    options.version = "test";
    return options;
  }
};

class ReplicaTest : public StoreTest {
 protected:
  // Started, and healthy.
  std::unique_ptr<Replica> StartReplica(const std::string& name) {
    auto replica = std::make_unique<Replica>(OpenStore(6), name);
    replica->engine->Start();
    EXPECT_TRUE(replica->AwaitHealthy()) << replica->engine->health().database_error;
    return replica;
  }
};

}  // namespace tenure::testing
