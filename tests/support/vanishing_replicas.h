// What the randomized tests share: several replicas of which some vanish without a word, workers and producers that go
// to any of them, and what the daemon's background workers do meanwhile. Layer: tests. Members marked so may be used
// from every thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tests/support/engine_fixture.h"

namespace tenure::testing {

class VanishingReplicasTest : public ReplicaTest {
 protected:
  using Random = std::mt19937;
  using Actor = std::function<void(Random random)>;

  // Any thread.
  static int Draw(Random& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

  // From TENURE_TEST_SEED, so that a run can be had again, or a new one; recorded with the test.
  static uint32_t Seed();
  void StartReplicas();
  // Any thread. One of those that are there now; it may vanish at any moment.
  std::shared_ptr<Replica> Any(Random& random);
  // Four of `work` until all is over, two of `produce`, and what background workers do. Meanwhile `crashes` replicas
  // vanish, and others come. Returns once the producers are through and no live job is left; false: some were left
  // after a minute and a half.
  bool Run(uint32_t seed, const Actor& work, const Actor& produce, int crashes);
  // Any thread. True once it is over: `work` returns then.
  bool done() const { return done_; }

 private:
  void Background();
  void Crash(int nth);

  std::mutex mu_;
  std::vector<std::shared_ptr<Replica>> replicas_;  // Guarded by mu_.
  std::vector<std::shared_ptr<Replica>> vanished_;  // Kept to the end of the test.
  std::atomic<bool> done_{false};
};

}  // namespace tenure::testing
