// What operators do with single jobs, through the engine.
#include <string>
#include <vector>

#include "tests/support/engine_fixture.h"

namespace tenure::engine {
namespace {

using testing::Replica;

class EngineJobsTest : public testing::ReplicaTest {};

TEST_F(EngineJobsTest, AJobThatACallNamesTwiceIsRetriedOnce) {
  auto replica = StartReplica("a");
  store::NewJob job;
  job.kind = "k";
  const auto made = replica->Enqueue("q", {job});
  ASSERT_TRUE(made.ok()) << made.status();
  const store::JobId id = (*made)[0].id;
  const auto cancelled = Replica::Await<std::vector<CancelAnswer>>(
      [&](auto done) { replica->engine->Cancel({id}, "", Deadline::max(), std::move(done)); });
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  const auto retried = Replica::Await<std::vector<store::RetryOutcome>>([&](auto done) {
    replica->engine->Retry({id, id}, "", std::move(done));
  });
  ASSERT_TRUE(retried.ok()) << retried.status();
  ASSERT_EQ(retried->size(), 2u);
  EXPECT_TRUE((*retried)[0].status.ok()) << (*retried)[0].status;
  EXPECT_EQ((*retried)[0].id, (*retried)[1].id);
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "1");
}

}  // namespace
}  // namespace tenure::engine
