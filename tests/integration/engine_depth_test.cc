// Bounds of depth for calls whose jobs wait for others: such a call is one transaction, and takes room only for what
// it writes.
#include <string>
#include <vector>

#include "server/base/status.h"
#include "tests/support/engine_fixture.h"

namespace tenure::engine {
namespace {

using testing::Replica;

class EngineDepthTest : public testing::ReplicaTest {
 protected:
  static std::vector<std::string> Reasons(Replica& replica, std::vector<store::NewJob> jobs) {
    const auto outcomes = replica.Enqueue("q", std::move(jobs));
    EXPECT_TRUE(outcomes.ok()) << outcomes.status();
    std::vector<std::string> reasons;
    for (const store::EnqueueOutcome& outcome : outcomes.value_or(std::vector<store::EnqueueOutcome>())) {
      reasons.push_back(DetailsOf(outcome.status).reason);
    }
    return reasons;
  }
  static store::NewJob Job() {
    store::NewJob job;
    job.kind = "k";
    return job;
  }
};

TEST_F(EngineDepthTest, AJobWhoseDependencyIsUnknownTakesNoRoom) {
  auto replica = StartReplica("a");
  store::QueueSettings settings;
  settings.max_depth = 3;
  auto made = Replica::Await<QueueInfo>(
      [&](auto done) { replica->engine->CreateQueue("q", settings, false, std::move(done)); });
  ASSERT_TRUE(made.ok()) << made.status();
  store::NewJob waits = Job(), lost = Job();
  waits.depends_on = store::DependsOn{{}, {0}, false, false};
  lost.depends_on = store::DependsOn{{store::JobId{made->queue.id, 20'000, 999'999}}, {}, false, false};
  EXPECT_EQ(Reasons(*replica, {Job(), waits, lost, Job()}),
            (std::vector<std::string>{"", "", "JOB_NOT_FOUND", "QUEUE_FULL"}));
  EXPECT_EQ(Reasons(*replica, {Job(), waits}), (std::vector<std::string>{"", "QUEUE_FULL"}));
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "3");
}

}  // namespace
}  // namespace tenure::engine
