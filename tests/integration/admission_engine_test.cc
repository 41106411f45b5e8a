// Admission through engines: slots are filled again at once, by whichever replica, and what is lost is found.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "tests/support/engine_fixture.h"

namespace tenure::engine {
namespace {

using testing::Eventually;
using testing::Replica;

class AdmissionEngineTest : public testing::ReplicaTest {
 protected:
  static store::NewJob Job(std::vector<std::string> keys, std::string group = "") {
    store::NewJob job;
    job.kind = "k";
    job.payload = {"{}", "application/json"};
    job.concurrency_keys = std::move(keys);
    job.group = std::move(group);
    return job;
  }
  static absl::StatusOr<store::Limit> SetLimit(Replica& replica, store::LimitScope scope, const std::string& key,
                                               store::LimitSettings settings) {
    return Replica::Await<store::Limit>(
        [&](auto done) { replica.engine->SetLimit("q", scope, key, settings, std::move(done)); });
  }
  static void Complete(Replica& replica, const std::vector<store::ClaimedJob>& jobs) {
    std::vector<CompleteItem> items;
    for (const store::ClaimedJob& job : jobs) items.push_back({job.token, std::nullopt, {}});
    auto answers = replica.Complete(std::move(items));
    ASSERT_TRUE(answers.ok()) << answers.status();
    for (const SettleAnswer& answer : *answers) EXPECT_TRUE(answer.status.ok()) << answer.status;
  }
  std::string Ready() { return Sql("select count(*) from tenure.job where state = 3"); }
};

TEST_F(AdmissionEngineTest, ASlotIsFilledAgainWhoeverFreesIt) {
  auto a = StartReplica("a"), b = StartReplica("b");
  ASSERT_TRUE(SetLimit(*a, store::LimitScope::kKey, "key", {1, std::nullopt}).ok());
  auto enqueued = a->Enqueue("q", std::vector<store::NewJob>(20, Job({"key"})));
  ASSERT_TRUE(enqueued.ok()) << enqueued.status();
  EXPECT_EQ((*enqueued)[0].state, store::JobState::kBlocked);
  // Claimed here, completed there, in turn: a poll that is parked gets the next without waiting for its end.
  for (int i = 0; i < 20; ++i) {
    auto claimed = (i % 2 == 0 ? a : b)->Claim("q", 5, absl::Seconds(10));
    ASSERT_TRUE(claimed.ok() && claimed->jobs.size() == 1) << claimed.status() << " of turn " << i;
    Complete(i % 3 == 0 ? *a : *b, claimed->jobs);
  }
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "0");
}

TEST_F(AdmissionEngineTest, ARaisedLimitAdmitsAtOnce) {
  auto a = StartReplica("a");
  ASSERT_TRUE(SetLimit(*a, store::LimitScope::kPrefix, "key:", {0, std::nullopt}).ok());
  ASSERT_TRUE(a->Enqueue("q", {Job({"key:1"}), Job({"key:1"}), Job({"key:2"}), Job({"other", "key:3"})}).ok());
  auto nothing = a->Claim("q", 5, absl::ZeroDuration());
  ASSERT_TRUE(nothing.ok() && nothing->jobs.empty());
  ASSERT_TRUE(SetLimit(*a, store::LimitScope::kPrefix, "key:", {1, std::nullopt}).ok());
  EXPECT_TRUE(Eventually(10, [&] { return Ready() == "3"; })) << Ready();
  auto gone = Replica::Await<bool>(
      [&](auto done) { a->engine->DeleteLimit("q", store::LimitScope::kPrefix, "key:", std::move(done)); });
  ASSERT_TRUE(gone.ok()) << gone.status();
  EXPECT_TRUE(Eventually(10, [&] { return Ready() == "4"; })) << Ready();
}

TEST_F(AdmissionEngineTest, ARateGoesOnByItself) {
  auto a = StartReplica("a");
  ASSERT_TRUE(
      SetLimit(*a, store::LimitScope::kKey, "key", {std::nullopt, store::Rate{absl::Milliseconds(50), 2}}).ok());
  const Clock::TimePoint began = Clock::Real().Now();
  ASSERT_TRUE(a->Enqueue("q", std::vector<store::NewJob>(12, Job({"key"}))).ok());
  EXPECT_TRUE(Eventually(20, [&] { return Ready() == "12"; })) << Ready();
  EXPECT_GE(Clock::Real().Now() - began, std::chrono::milliseconds(450)) << "ten after the burst, one per 50 ms";
}

TEST_F(AdmissionEngineTest, AnApplicationsJobsAndCompletesAreAdmittedByTheDaemon) {
  auto a = StartReplica("a");
  ASSERT_TRUE(SetLimit(*a, store::LimitScope::kKey, "key", {1, std::nullopt}).ok());
  Sql("select tenure.enqueue('q', 'k', concurrency_keys => '{key}') from generate_series(1, 2)");
  auto first = a->Claim("q", 5, absl::Seconds(10));
  ASSERT_TRUE(first.ok() && first->jobs.size() == 1) << first.status();
  Sql(absl::StrCat("select tenure.complete('", first->jobs[0].token.ToString(), "')"));
  auto second = a->Claim("q", 5, absl::Seconds(10));
  ASSERT_TRUE(second.ok() && second->jobs.size() == 1) << second.status();
}

TEST_F(AdmissionEngineTest, AQueuesOwnLimitHoldsForAllItsJobs) {
  auto a = StartReplica("a"), b = StartReplica("b");
  ASSERT_TRUE(SetLimit(*a, store::LimitScope::kQueue, "", {2, std::nullopt}).ok());
  ASSERT_TRUE(b->Enqueue("q", std::vector<store::NewJob>(10, Job({}))).ok());
  int done = 0;
  while (done < 10) {
    auto claimed = b->Claim("q", 10, absl::Seconds(10));
    ASSERT_TRUE(claimed.ok()) << claimed.status();
    ASSERT_GT(claimed->jobs.size(), 0u);
    EXPECT_LE(claimed->jobs.size(), 2u);
    done += static_cast<int>(claimed->jobs.size());
    Complete(*b, claimed->jobs);
  }
}

// CASE 14: a replica dies between freeing a slot and filling it again.
TEST_F(AdmissionEngineTest, TheSweepMakesUpForALookThatWasLost) {
  auto a = StartReplica("a");
  ASSERT_TRUE(SetLimit(*a, store::LimitScope::kKey, "key", {1, std::nullopt}).ok());
  ASSERT_TRUE(a->Enqueue("q", {Job({"key"}), Job({"key"}), Job({}, "g"), Job({}, "g")}).ok());
  ASSERT_TRUE(Eventually(10, [&] { return Ready() == "2"; })) << Ready();
  auto claimed = a->Claim("q", 5, absl::Seconds(10));
  ASSERT_TRUE(claimed.ok() && claimed->jobs.size() == 2) << claimed.status();
  // By the store alone: nobody looks.
  for (const store::ClaimedJob& job : claimed->jobs) {
    const std::vector<store::CompleteItem> items{{job.token, std::nullopt, {}}};
    ASSERT_TRUE(store_->Complete(job.job.id.queue, items).ok());
  }
  EXPECT_EQ(Ready(), "0");
  auto page = store_->BlockedNames({}, 100);
  ASSERT_TRUE(page.ok()) << page.status();
  a->engine->NoteGates(page->names);
  EXPECT_TRUE(Eventually(10, [&] { return Ready() == "2"; })) << Ready();
}

}  // namespace
}  // namespace tenure::engine
