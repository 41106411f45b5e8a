// Bounds of depth: what takes room, and who is let through without.
#include <optional>
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
  // Answers its number.
  static int32_t CreateQueue(Replica& replica, int64_t max_depth, std::optional<int64_t> max_tenant_depth = {}) {
    store::QueueSettings settings;
    settings.max_depth = max_depth;
    settings.max_tenant_depth = max_tenant_depth;
    const auto made = Replica::Await<QueueInfo>(
        [&](auto done) { replica.engine->CreateQueue("q", settings, false, std::move(done)); });
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->queue.id : 0;
  }
  static store::NewJob Job() {
    store::NewJob job;
    job.kind = "k";
    return job;
  }
};

// Who does not know whether its job was accepted must be told so, however full the queue has become.
TEST_F(EngineDepthTest, ARepeatIsAnsweredWithItsJobAlsoWhenTheQueueIsFull) {
  auto replica = StartReplica("a");
  CreateQueue(*replica, 3, /*max_tenant_depth=*/2);
  const auto keyed = [](const std::string& key, const std::string& tenant = "", const std::string& payload = "") {
    store::NewJob job = Job();
    job.idempotency_key = key;
    job.idempotency_retention = absl::Hours(1);
    job.tenant = tenant;
    job.payload.data = payload;
    return job;
  };
  const auto first = replica->Enqueue("q", {keyed("a", "t"), keyed("b", "t"), keyed("c")});
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(Reasons(*replica, {Job(), keyed("d"), keyed("e", "t"), keyed("d")}),
            (std::vector<std::string>{"QUEUE_FULL", "QUEUE_FULL", "TENANT_FULL", "QUEUE_FULL"}));

  const auto repeated =
      replica->Enqueue("q", {keyed("c"), keyed("a", "t"), keyed("b", "t", "another"), keyed("d", "t"), keyed("c")});
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  std::vector<std::string> reasons;
  for (const store::EnqueueOutcome& outcome : *repeated) reasons.push_back(DetailsOf(outcome.status).reason);
  EXPECT_EQ(reasons, (std::vector<std::string>{"", "", "IDEMPOTENCY_CONFLICT", "TENANT_FULL", ""}));
  for (const auto& [at, was] : {std::pair(0, 2), std::pair(1, 0), std::pair(4, 2)}) {
    EXPECT_TRUE((*repeated)[at].duplicate);
    EXPECT_EQ((*repeated)[at].id, (*first)[was].id);
  }
  // So is one in a call that waits for others, and the second of two in a call whose first one fits.
  store::NewJob waits = keyed("a", "t");
  waits.depends_on = store::DependsOn{{}, {0}, false, false};
  EXPECT_EQ(Reasons(*replica, {keyed("c"), waits}), (std::vector<std::string>{"", "IDEMPOTENCY_CONFLICT"}));
  Sql("update tenure.idempotency set expires_at = now() where key = 'c'");
  EXPECT_EQ(Reasons(*replica, {keyed("c")}), (std::vector<std::string>{"QUEUE_FULL"})) << "its retention is past";
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "3");
}

TEST_F(EngineDepthTest, TwoOfACallWithOneKeyTakeTheRoomOfOne) {
  auto replica = StartReplica("a");
  CreateQueue(*replica, 1);
  store::NewJob job = Job();
  job.idempotency_key = "a";
  job.idempotency_retention = absl::Hours(1);
  EXPECT_EQ(Reasons(*replica, {job, job, Job()}), (std::vector<std::string>{"", "", "QUEUE_FULL"}));
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "1");
}

// A producer that repeats a call whose answer was lost gets what is new in it in, as far as there is room.
TEST_F(EngineDepthTest, RepeatsTakeNoRoomFromWhatIsNewInTheirCall) {
  auto replica = StartReplica("a");
  CreateQueue(*replica, 10, /*max_tenant_depth=*/9);
  const auto jobs = [](int from, int to) {
    std::vector<store::NewJob> all;
    for (int i = from; i < to; ++i) {
      store::NewJob& job = all.emplace_back(Job());
      job.idempotency_key = "x" + std::to_string(i);
      job.idempotency_retention = absl::Hours(1);
      if (i % 2 == 0) job.tenant = "t";
    }
    return all;
  };
  ASSERT_EQ(Reasons(*replica, jobs(0, 8)), std::vector<std::string>(8));
  std::vector<std::string> expected(10);
  expected.insert(expected.end(), {"QUEUE_FULL", "QUEUE_FULL"});
  EXPECT_EQ(Reasons(*replica, jobs(0, 12)), expected);
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "10");
}

TEST_F(EngineDepthTest, AUniqueJobThatMakesNoneIsLetThrough) {
  auto replica = StartReplica("a");
  CreateQueue(*replica, 1);
  const auto unique = [](const std::string& key, store::OnConflict policy, const std::string& payload) {
    store::NewJob job = Job();
    job.payload.data = payload;
    job.unique = store::Unique{.key = key,
                               .states = {store::JobState::kReady, store::JobState::kLeased},
                               .period = absl::ZeroDuration(),
                               .on_conflict = policy};
    return job;
  };
  using store::OnConflict;
  EXPECT_EQ(Reasons(*replica, {unique("u", OnConflict::kReturn, "1")}), (std::vector<std::string>{""}));
  EXPECT_EQ(Reasons(*replica, {unique("u", OnConflict::kReturn, "2"), unique("u", OnConflict::kReject, "3"),
                               unique("u", OnConflict::kReplace, "4"), unique("v", OnConflict::kReturn, "5")}),
            (std::vector<std::string>{"", "UNIQUE_CONFLICT", "", "QUEUE_FULL"}));
  EXPECT_EQ(Sql("select string_agg(convert_from(payload, 'utf8'), ' ') from tenure.job"), "4");
}

// Whom the queue has no room for does not count for his tenant.
TEST_F(EngineDepthTest, TheReasonIsTheBoundThatIsReached) {
  auto replica = StartReplica("a");
  CreateQueue(*replica, 3, /*max_tenant_depth=*/2);
  const auto of = [](const std::string& tenant) {
    store::NewJob job = Job();
    job.tenant = tenant;
    return job;
  };
  EXPECT_EQ(
      Reasons(*replica, {of("a"), of("a"), of("a"), of("b"), of("b"), of("b"), of("b"), Job()}),
      (std::vector<std::string>{"", "", "TENANT_FULL", "", "QUEUE_FULL", "QUEUE_FULL", "QUEUE_FULL", "QUEUE_FULL"}));
}

TEST_F(EngineDepthTest, AJobWhoseDependencyIsUnknownTakesNoRoom) {
  auto replica = StartReplica("a");
  const int32_t queue = CreateQueue(*replica, 3);
  store::NewJob waits = Job(), lost = Job();
  waits.depends_on = store::DependsOn{{}, {0}, false, false};
  lost.depends_on = store::DependsOn{{store::JobId{queue, 20'000, 999'999}}, {}, false, false};
  EXPECT_EQ(Reasons(*replica, {Job(), waits, lost, Job()}),
            (std::vector<std::string>{"", "", "JOB_NOT_FOUND", "QUEUE_FULL"}));
  EXPECT_EQ(Reasons(*replica, {Job(), waits}), (std::vector<std::string>{"", "QUEUE_FULL"}));
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "3");
}

}  // namespace
}  // namespace tenure::engine
