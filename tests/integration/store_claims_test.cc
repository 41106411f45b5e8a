// Claims in the store on a real PostgreSQL: what is leased, how far was read, what an answer holds, repeats.
#include <algorithm>
#include <set>

#include "server/base/status.h"
#include "tests/support/store_lifecycle_fixture.h"

namespace tenure::store {
namespace {

// Also where all jobs of a page are claimed at once. PostgreSQL counts such updates; a session tells its counts when it
// has been idle for a moment.
TEST_F(StoreLifecycleTest, TakingAndGivingBackALeaseAreHotUpdates) {
  Enqueue(500);
  const std::vector<ClaimedJob> jobs = Claim(500);
  ASSERT_EQ(jobs.size(), 500u);
  std::vector<ExtendItem> extends;
  std::vector<GiveBackItem> releases;
  for (size_t i = 0; i < jobs.size(); i += 10) {
    extends.push_back({jobs[i].token, absl::Minutes(10), Progress{0.5, "half"}});
    releases.push_back({jobs[i].token, absl::ZeroDuration()});
  }
  ASSERT_TRUE(store_->Extend(queue_, extends).ok());
  ASSERT_TRUE(store_->GiveBack(queue_, Verb::kRelease, releases).ok());
  const auto count = [&](const std::string& column) {
    return std::stoi(Sql(
        absl::StrCat("select ", column, " from pg_stat_user_tables where schemaname = 'tenure' and relname = 'job'")));
  };
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (count("n_tup_upd") < 600 && absl::Now() < deadline) ASSERT_TRUE(store_->Ping().ok());
  EXPECT_EQ(count("n_tup_upd"), 600);
  // A page gives the room of the claims' old versions back when it is next read, unless somebody might still see them.
  EXPECT_GE(count("n_tup_hot_upd"), 550);
}

TEST_F(StoreLifecycleTest, AClaimReportsHowFarItRead) {
  const auto ids = Enqueue(5);
  auto first = store_->Claim(Batch(3));
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->jobs.size(), 3u);
  EXPECT_FALSE(first->ranges[0].exhausted);
  EXPECT_EQ(*first->ranges[0].last, (Key{0, ids[2].seq}));
  auto second = store_->Claim(Batch(10, absl::Seconds(30), *first->ranges[0].last));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->jobs.size(), 2u);
  EXPECT_TRUE(second->ranges[0].exhausted);
}

TEST_F(StoreLifecycleTest, AClaimWhoseByteBudgetIsSpentHasReadNoFurther) {
  const std::vector<NewJob> jobs(6, Spec(std::string(900, 'x')));
  const std::vector<JobId> ids = EnqueueAll(jobs);
  Key after = kLowestKey;
  for (const bool alone : {true, false}) {
    ClaimBatch batch = Batch(5, absl::Seconds(30), after);
    batch.max_bytes = 3000;
    batch.alone = alone;
    auto claimed = store_->Claim(batch);
    ASSERT_TRUE(claimed.ok()) << claimed.status();
    EXPECT_EQ(claimed->jobs.size(), 2u);
    EXPECT_FALSE(claimed->ranges[0].exhausted);
    EXPECT_TRUE(claimed->missed.empty());
    ASSERT_TRUE(claimed->ranges[0].last.has_value());
    after = *claimed->ranges[0].last;
    EXPECT_EQ(after.id, ids[alone ? 1 : 3].seq);
  }
  // Of single ids, those over the budget are to be looked at again; the stretch was not begun.
  ClaimBatch batch = Batch(5, absl::Seconds(30), after);
  batch.max_bytes = 100;
  batch.revisit = {ids[5].seq, ids[4].seq};
  std::sort(batch.revisit.begin(), batch.revisit.end());
  auto claimed = store_->Claim(batch);
  ASSERT_TRUE(claimed.ok()) << claimed.status();
  ASSERT_EQ(claimed->jobs.size(), 1u);
  EXPECT_EQ(claimed->jobs[0].job.id.seq, ids[4].seq);
  EXPECT_EQ(claimed->missed, std::vector<int64_t>{ids[5].seq});
  EXPECT_FALSE(claimed->ranges[0].exhausted);
  EXPECT_FALSE(claimed->ranges[0].last.has_value());
}

TEST_F(StoreLifecycleTest, HeadersAndErrorTextsCountInTheByteBudget) {
  NewJob job = Spec();
  for (int i = 0; i < 4; ++i) job.headers["h" + std::to_string(i)] = std::string(2'000, 'x');
  ASSERT_TRUE(store_->Enqueue(queue_, std::vector<NewJob>(10, job)).ok());
  ClaimBatch batch = Batch(10);
  batch.max_bytes = 30'000;
  auto claimed = store_->Claim(batch);
  ASSERT_TRUE(claimed.ok()) << claimed.status();
  EXPECT_EQ(claimed->jobs.size(), 3u);
  // One that failed carries its error to the next attempt.
  Enqueue(4);
  Sql("update tenure.job set state = 1, place = 1 where state = 3 and headers is not null");
  Sql("update tenure.job set error_message = 'm', error_detail = repeat('x', 50000), error_at = now() where state = 3");
  batch.max_bytes = 110'000;
  claimed = store_->Claim(batch);
  ASSERT_TRUE(claimed.ok()) << claimed.status();
  EXPECT_EQ(claimed->jobs.size(), 2u);
}

TEST_F(StoreLifecycleTest, NamedJobsThatDoNotFitInTheAnswerAreRefusedAndStayReady) {
  const std::vector<NewJob> jobs(4, Spec(std::string(900, 'x')));
  const std::vector<JobId> ids = EnqueueAll(jobs);
  auto outcomes = store_->ClaimNamed(queue_, replica_, "w", absl::Seconds(30), "", ids, 3'000);
  ASSERT_TRUE(outcomes.ok()) << outcomes.status();
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ((*outcomes)[i].job.has_value(), i < 2) << i;
    if (i >= 2) {
      EXPECT_EQ(DetailsOf((*outcomes)[i].refusal).reason, "REPLY_FULL");
    }
  }
  EXPECT_EQ(Sql("select count(*) from tenure.job where state = 3"), "2");
  // The first always fits.
  outcomes = store_->ClaimNamed(queue_, replica_, "w", absl::Seconds(30), "", std::vector<JobId>{ids[2]}, 1);
  EXPECT_TRUE((*outcomes)[0].job.has_value());
}

TEST_F(StoreLifecycleTest, ARowLockedByAnotherIsReportedAsMissed) {
  const auto ids = Enqueue(2);
  tenure::testing::PostgresEnv::Get();
  auto other = store::postgres::Connection::Open(database_.url(), "other", absl::Seconds(5)).value();
  store::postgres::Transaction tx(*other, {});
  const std::string lock = absl::StrCat("select 1 from tenure.job where id = ", ids[0].seq, " for update");
  ASSERT_TRUE(tx.Run(lock, store::postgres::Params()).ok());
  auto claimed = store_->Claim(Batch(5));
  ASSERT_TRUE(claimed.ok()) << claimed.status();
  ASSERT_EQ(claimed->jobs.size(), 1u);
  EXPECT_EQ(claimed->jobs[0].job.id, ids[1]);
  EXPECT_EQ(claimed->missed, std::vector<int64_t>{ids[0].seq});
  EXPECT_TRUE(tx.Commit().ok());
  ClaimBatch again = Batch(1);
  again.ranges.clear();
  again.revisit = claimed->missed;
  auto second = store_->Claim(again);
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ(second->jobs.size(), 1u);
  EXPECT_EQ(second->jobs[0].job.id, ids[0]);
}

TEST_F(StoreLifecycleTest, ARequestIdIsServedOnce) {
  Enqueue(3);
  ClaimBatch batch = Batch(2);
  batch.requests = {{"r-1", absl::Seconds(30)}};
  for (ClaimSlot& slot : batch.slots) slot.request = 0;
  batch.slots.push_back({0, -1, absl::Seconds(30)});
  auto first = store_->Claim(batch);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->jobs.size(), 3u);
  auto found = store_->FindClaim("r-1");
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ((*found)->size(), 2u);
  EXPECT_FALSE(store_->FindClaim("r-2")->has_value());
  Enqueue(1);
  auto again = store_->Claim(batch);
  EXPECT_EQ(again->taken_requests, std::vector<int32_t>{0});
  ASSERT_EQ(again->jobs.size(), 1u);
  EXPECT_EQ(again->jobs[0].slot, 2);
}

TEST_F(StoreLifecycleTest, AClaimThatGotNothingLeavesItsRequestIdFree) {
  ClaimBatch batch = Batch(1);
  batch.requests = {{"r-1", absl::Seconds(30)}};
  batch.slots[0].request = 0;
  EXPECT_TRUE(store_->Claim(batch)->jobs.empty());
  EXPECT_FALSE(store_->FindClaim("r-1")->has_value());
  Enqueue(1);
  auto second = store_->Claim(batch);
  EXPECT_TRUE(second->taken_requests.empty());
  EXPECT_EQ(second->jobs.size(), 1u);
}

TEST_F(StoreLifecycleTest, NamedClaimsTellWhoHolds) {
  const auto ids = Enqueue(2);
  const ClaimedJob held = Claim(1)[0];
  std::vector<JobId> wanted{ids[0], ids[1], {queue_, ids[0].day, 999'999}};
  auto outcomes = store_->ClaimNamed(queue_, replica_, "w2", absl::Seconds(30), "", wanted, 3 << 20);
  ASSERT_TRUE(outcomes.ok()) << outcomes.status();
  const ErrorDetails refusal = DetailsOf((*outcomes)[0].refusal);
  EXPECT_EQ(refusal.reason, "LEASE_HELD");
  EXPECT_EQ(refusal.metadata.at("holder"), "w");
  EXPECT_EQ(refusal.metadata.at("token_number"), "1");
  ASSERT_TRUE((*outcomes)[1].job);
  EXPECT_EQ((*outcomes)[1].job->job.lease->worker, "w2");
  EXPECT_EQ(DetailsOf((*outcomes)[2].refusal).reason, "JOB_NOT_FOUND");
}

TEST_F(StoreLifecycleTest, LargePayloadsComeBackEqual) {
  for (size_t size : {size_t{0}, size_t{1}, size_t{1000}, size_t{1001}, size_t{1 << 20}}) {
    std::string payload(size, '\0');
    for (size_t i = 0; i < size; ++i) payload[i] = static_cast<char>(i * 31);
    const std::vector<NewJob> specs{Spec(payload)};
    auto enqueued = store_->Enqueue(queue_, specs);
    ASSERT_TRUE(enqueued.ok()) << enqueued.status();
    auto claimed = Claim(1);
    ASSERT_EQ(claimed.size(), 1u) << size;
    EXPECT_TRUE(claimed[0].job.payload.data == payload) << size;
    EXPECT_EQ(Complete(claimed[0].token).state, TokenState::kWon);
    EXPECT_TRUE(store_->Get(enqueued->jobs[0].id)->payload.data == payload) << size;
  }
}

TEST_F(StoreLifecycleTest, LeasesThatWereSettledElsewhereAreTold) {
  Enqueue(4);
  const std::vector<ClaimedJob> held = Claim(4);
  ASSERT_EQ(held.size(), 4u);
  std::vector<LeaseRef> leases;
  for (const ClaimedJob& job : held) leases.push_back({queue_, job.job.id.seq, job.token.number});
  EXPECT_TRUE(store_->GoneLeases(queue_, leases).value().empty());
  // One settled, one given back and claimed anew under another token, two still held.
  EXPECT_EQ(Complete(held[0].token).state, TokenState::kWon);
  Sql("update tenure.job set state = 3, token = token + 1, worker = null where id = " + std::to_string(leases[1].id));
  EXPECT_EQ(Claim(1).size(), 1u);
  const auto gone = store_->GoneLeases(queue_, leases);
  ASSERT_TRUE(gone.ok()) << gone.status();
  ASSERT_EQ(gone->size(), 2u);
  EXPECT_EQ((*gone)[0].id, leases[0].id);
  EXPECT_EQ((*gone)[1].id, leases[1].id);
}

TEST_F(StoreLifecycleTest, PausedQueuesServeNoClaims) {
  Enqueue(1);
  ASSERT_TRUE(store_->SetPaused("q", true).ok());
  EXPECT_TRUE(Claim(1).empty());
  ASSERT_TRUE(store_->SetPaused("q", false).ok());
  EXPECT_EQ(Claim(1).size(), 1u);
}

}  // namespace
}  // namespace tenure::store
