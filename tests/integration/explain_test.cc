// Why a job is not running: every state and reason.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/fair_choice.h"
#include "tests/support/store_fixture.h"

namespace tenure::store {
namespace {

class ExplainTest : public tenure::testing::StoreTest {
 protected:
  ExplainTest() : queue_(store_->EnsureQueue("q", true)->id), granter_(*store_->RegisterReplica("granter", "test")) {}

  JobId Enqueue(std::vector<std::string> keys, std::string group = "", std::optional<absl::Duration> delay = {}) {
    NewJob job;
    job.kind = "k";
    job.concurrency_keys = std::move(keys);
    job.group = std::move(group);
    job.delay = delay;
    const std::vector<NewJob> jobs{job};
    return store_->Enqueue(queue_, jobs)->jobs[0].id;
  }
  void Admit(const std::vector<std::string>& names) {
    EXPECT_TRUE(store_->Admit(queue_, names, 100, FairWindow::kLeast).ok());
  }
  std::vector<ClaimedJob> Claim(int jobs) {
    ClaimBatch batch;
    batch.queue = queue_;
    batch.replica = granter_;
    batch.ranges = {{0, kLowestKey, kHighestKey}};
    batch.workers = {"w"};
    batch.slots.assign(static_cast<size_t>(jobs), ClaimSlot{0, -1, absl::Seconds(30)});
    return store_->Claim(batch)->jobs;
  }
  std::vector<WaitCause> Causes(const JobId& id) {
    auto explanation = store_->Explain(id);
    EXPECT_TRUE(explanation.ok()) << explanation.status();
    return explanation.ok() ? explanation->causes : std::vector<WaitCause>(1);
  }
  // The only one.
  WaitCause Cause(const JobId& id, WaitReason reason) {
    const std::vector<WaitCause> causes = Causes(id);
    EXPECT_EQ(causes.size(), 1u);
    EXPECT_EQ(causes[0].reason, reason) << static_cast<int>(causes[0].reason);
    return causes[0];
  }

  const int32_t queue_;
  const int32_t granter_;
};

TEST_F(ExplainTest, EveryStateAndReason) {
  // Ready: the place in line, and whether anybody asks.
  const JobId first = Enqueue({}), second = Enqueue({});
  std::vector<WaitCause> causes = Causes(second);
  ASSERT_EQ(causes.size(), 2u);
  EXPECT_EQ(causes[0].reason, WaitReason::kNoWorker);
  EXPECT_EQ(causes[1].reason, WaitReason::kReady);
  EXPECT_EQ(causes[1].position, 2);
  const std::vector<WorkerSeen> seen{{"w", {"other", "q"}}};
  ASSERT_TRUE(store_->RecordWorkers(seen).ok());
  EXPECT_EQ(Cause(first, WaitReason::kReady).position, 1);

  ASSERT_TRUE(store_->SetPaused("q", true).ok());
  causes = Causes(first);
  ASSERT_EQ(causes.size(), 2u);
  EXPECT_EQ(causes[0].reason, WaitReason::kQueuePaused);
  ASSERT_TRUE(store_->SetPaused("q", false).ok());

  // Leased, ended, scheduled, suspended.
  const auto leased = Claim(2);
  ASSERT_EQ(leased.size(), 2u);
  EXPECT_GT(*Cause(first, WaitReason::kLeased).until, leased[0].job.updated);
  const std::vector<CompleteItem> items{{leased[0].token, std::nullopt, {}}, {leased[1].token, std::nullopt, {}}};
  ASSERT_TRUE(store_->Complete(queue_, items).ok());
  Cause(first, WaitReason::kEnded);
  EXPECT_EQ(store_->Explain(first)->job.state, JobState::kCompleted);
  EXPECT_EQ(DetailsOf(store_->Explain({queue_, first.day, 999'999}).status()).reason, "JOB_NOT_FOUND");
  const JobId later = Enqueue({}, "", absl::Hours(1));
  EXPECT_EQ(*Cause(later, WaitReason::kScheduled).until, store_->Get(later)->due);
  Sql(absl::StrCat("update tenure.job set state = 5, place = 5 where id = ", later.seq));
  Cause(later, WaitReason::kSuspended);

  // Group: behind the one that runs, or that waits for its time.
  const JobId head = Enqueue({}, "g", absl::Hours(1)), behind = Enqueue({}, "g");
  WaitCause cause = Cause(behind, WaitReason::kGroup);
  EXPECT_EQ(cause.ahead, head);
  EXPECT_EQ(cause.ahead_state, JobState::kScheduled);
  EXPECT_EQ(*cause.until, store_->Get(head)->due);
  const std::vector<JobId> gone{head};
  ASSERT_TRUE(store_->Cancel(queue_, gone, "").ok());
  Cause(behind, WaitReason::kBeingAdmitted);
  Admit({"gg"});
  EXPECT_EQ(Cause(Enqueue({}, "g"), WaitReason::kGroup).ahead, behind);

  // Keys: full, paced, paused; with holders and the place in line.
  ASSERT_TRUE(store_->SetLimit(queue_, LimitScope::kKey, "a", {1, std::nullopt}).ok());
  const JobId holder = Enqueue({"a"});
  Admit({"ka"});
  Enqueue({"a"});
  cause = Cause(Enqueue({"a"}), WaitReason::kKeyFull);
  EXPECT_EQ(cause.key, "a");
  EXPECT_EQ(cause.limit, 1);
  EXPECT_EQ(cause.holders, std::vector<JobId>{holder});
  EXPECT_EQ(cause.position, 2);
  ASSERT_TRUE(store_->SetLimit(queue_, LimitScope::kKey, "r", {std::nullopt, Rate{absl::Hours(1), 1}}).ok());
  Enqueue({"r"});
  Admit({"kr"});
  cause = Cause(Enqueue({"r"}), WaitReason::kKeyRate);
  EXPECT_GT(*cause.until, store_->Get(holder)->created + absl::Minutes(59));
  Sql(absl::StrCat("insert into tenure.admission_pace (queue_id, key, paused_until) values (", queue_,
                   ", 'p', now() + interval '1 h')"));
  EXPECT_TRUE(Cause(Enqueue({"p"}), WaitReason::kKeyPaused).until.has_value());

  // The queue itself: its limit, its rate.
  ASSERT_TRUE(store_->SetLimit(queue_, LimitScope::kQueue, "", {1, std::nullopt}).ok());
  cause = Cause(Enqueue({}), WaitReason::kQueueFull);
  EXPECT_EQ(cause.limit, 1);
  EXPECT_EQ(cause.position, 1);
  ASSERT_TRUE(store_->SetLimit(queue_, LimitScope::kQueue, "", {std::nullopt, Rate{absl::Hours(1), 1}}).ok());
  Admit({"q"});
  Cause(Enqueue({}), WaitReason::kQueueRate);
  ASSERT_TRUE(store_->DeleteLimit(queue_, LimitScope::kQueue, "").ok());
  ASSERT_TRUE(store_->DeleteLimit(queue_, LimitScope::kKey, "a").ok());
}

}  // namespace
}  // namespace tenure::store
