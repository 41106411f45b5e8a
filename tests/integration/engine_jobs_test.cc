// What operators do with jobs and queues, through the engine.
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

// Without the background worker that would find the group: the change itself has it looked at.
TEST_F(EngineJobsTest, AGroupThatMaySkipItsRetryingHeadGoesOnAtOnce) {
  auto replica = StartReplica("a");
  store::NewJob job;
  job.kind = "k";
  job.group = "g";
  const auto made = replica->Enqueue("q", {job, job});
  ASSERT_TRUE(made.ok()) << made.status();
  const auto first = replica->Claim("q", 10, absl::Seconds(20));
  ASSERT_TRUE(first.ok() && first->jobs.size() == 1) << first.status();
  const auto failed = replica->Fail({{first->jobs[0].token, {"boom", "T", ""}, false, absl::Hours(1)}});
  ASSERT_TRUE(failed.ok()) << failed.status();
  store::QueueSettings settings;
  settings.skip_retrying = true;
  const auto changed = Replica::Await<QueueInfo>(
      [&](auto done) { replica->engine->UpdateQueue("q", settings, {"groups_skip_retrying"}, std::move(done)); });
  ASSERT_TRUE(changed.ok()) << changed.status();
  const auto second = replica->Claim("q", 10, absl::Seconds(20));
  ASSERT_TRUE(second.ok() && second->jobs.size() == 1) << second.status();
  EXPECT_EQ(second->jobs[0].job.id, (*made)[1].id);
}

}  // namespace
}  // namespace tenure::engine
