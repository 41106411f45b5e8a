// The store's methods one by one on a real PostgreSQL: what each writes, answers and refuses.
#include <algorithm>
#include <set>

#include "server/base/status.h"
#include "tests/support/store_fixture.h"

namespace tenure::store {
namespace {

using testing::StoreTest;

class StoreLifecycleTest : public tenure::testing::StoreTest {
 protected:
  StoreLifecycleTest() {
    queue_ = store_->EnsureQueue("q", true).value().id;
    replica_ = store_->RegisterReplica("replica-1", "test").value();
  }

  NewJob Spec(std::string payload = "{}") {
    NewJob job;
    job.kind = "k";
    job.payload = {std::move(payload), "application/json"};
    return job;
  }

  std::vector<JobId> Enqueue(int n) { return EnqueueAll(std::vector<NewJob>(static_cast<size_t>(n), Spec())); }

  std::vector<JobId> EnqueueAll(const std::vector<NewJob>& jobs) {
    auto result = store_->Enqueue(queue_, jobs);
    EXPECT_TRUE(result.ok()) << result.status();
    std::vector<JobId> ids;
    for (const EnqueueOutcome& outcome : result->jobs) ids.push_back(outcome.id);
    return ids;
  }

  ClaimBatch Batch(int slots, absl::Duration lease = absl::Seconds(30), Key after = kLowestKey) {
    ClaimBatch batch;
    batch.queue = queue_;
    batch.replica = replica_;
    batch.ranges = {{0, after, kHighestKey}};
    batch.workers = {"w"};
    batch.slots.assign(static_cast<size_t>(slots), ClaimSlot{0, -1, lease});
    return batch;
  }

  std::vector<ClaimedJob> Claim(int slots, absl::Duration lease = absl::Seconds(30)) {
    auto result = store_->Claim(Batch(slots, lease));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->jobs : std::vector<ClaimedJob>();
  }

  SettleOutcome Complete(const LeaseToken& token, std::optional<Payload> result = std::nullopt) {
    const std::vector<CompleteItem> items{{token, std::move(result), {}}};
    auto settled = store_->Complete(queue_, items);
    EXPECT_TRUE(settled.ok()) << settled.status();
    return settled->items[0];
  }

  TokenState Resolve(Verb verb, const LeaseToken& token) {
    const std::vector<LeaseToken> tokens{token};
    auto resolved = store_->ResolveTokens(queue_, verb, tokens);
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    return (*resolved)[0].state;
  }

  int32_t queue_ = 0;
  int32_t replica_ = 0;
};

TEST_F(StoreLifecycleTest, AJobGoesFromEnqueueToHistory) {
  NewJob spec = Spec("{\"a\":1}");
  spec.headers = {{"trace", "t-1"}};
  spec.priority = 0;
  spec.tenant = "acme";
  const std::vector<NewJob> specs{spec};
  auto enqueued = store_->Enqueue(queue_, specs);
  ASSERT_TRUE(enqueued.ok()) << enqueued.status();
  const JobId id = enqueued->jobs[0].id;
  ASSERT_EQ(enqueued->ready.size(), 1u);
  EXPECT_EQ(enqueued->ready[0].low, (Key{0, id.seq}));

  auto claimed = Claim(5);
  ASSERT_EQ(claimed.size(), 1u);
  EXPECT_EQ(claimed[0].job.id, id);
  EXPECT_EQ(claimed[0].job.attempt, 1);
  EXPECT_EQ(claimed[0].job.payload.data, "{\"a\":1}");
  EXPECT_EQ(claimed[0].job.headers.at("trace"), "t-1");
  EXPECT_EQ(claimed[0].token.number, 1);
  // The same in every answer about the job, or it could not be passed on.
  EXPECT_EQ(claimed[0].job.effect_key, id.ToString());
  EXPECT_EQ(store_->Get(id)->effect_key, id.ToString());

  EXPECT_EQ(Complete(claimed[0].token, Payload{"done", "text/plain"}).state, TokenState::kWon);
  auto job = store_->Get(id);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state, JobState::kCompleted);
  ASSERT_TRUE(job->result);
  EXPECT_EQ(job->result->data, "done");
  EXPECT_EQ(job->tenant, "acme");
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "0");
}

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
  Sql("update tenure.job set state = 1 where state = 3 and headers is not null");
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

TEST_F(StoreLifecycleTest, SettlesAreReplayedByTokenAndVerb) {
  Enqueue(1);
  const LeaseToken token = Claim(1)[0].token;
  EXPECT_EQ(Complete(token).state, TokenState::kWon);
  EXPECT_EQ(Complete(token).state, TokenState::kUnresolved);
  EXPECT_EQ(Resolve(Verb::kComplete, token), TokenState::kReplayed);
  EXPECT_EQ(Resolve(Verb::kFail, token), TokenState::kAlreadySettled);
  LeaseToken forged = token;
  forged.secret ^= 1;
  EXPECT_EQ(Resolve(Verb::kComplete, forged), TokenState::kLeaseLost);
}

TEST_F(StoreLifecycleTest, AFailureBacksOffAndThenDiscards) {
  NewJob spec = Spec();
  spec.max_attempts = 2;
  spec.backoff = Backoff{1000, 2, 1'000'000};
  const std::vector<NewJob> specs{spec};
  const JobId id = store_->Enqueue(queue_, specs)->jobs[0].id;
  LeaseToken token = Claim(1)[0].token;
  std::vector<FailItem> fails{{token, {"boom", "T", "trace"}, false, std::nullopt}};
  auto failed = store_->Fail(queue_, fails);
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_EQ(failed->items[0].state, TokenState::kWon);
  EXPECT_EQ(failed->items[0].job_state, JobState::kScheduled);
  EXPECT_EQ(Resolve(Verb::kFail, token), TokenState::kReplayed);
  EXPECT_EQ(Resolve(Verb::kComplete, token), TokenState::kAlreadySettled);
  ASSERT_EQ(store_->Retry(id, "")->id, id);
  auto claimed = Claim(1);
  ASSERT_EQ(claimed.size(), 1u);
  EXPECT_EQ(claimed[0].job.failures, 1);
  EXPECT_EQ(claimed[0].job.error->message, "boom");
  fails[0].token = claimed[0].token;
  failed = store_->Fail(queue_, fails);
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_EQ(failed->items[0].job_state, JobState::kDiscarded);
  EXPECT_EQ(Sql("select count(*) from tenure.dead_letter"), "1");
  EXPECT_EQ(store_->Get(id)->state, JobState::kDiscarded);
}

TEST_F(StoreLifecycleTest, ReleaseAndSnoozeSpendNoBudget) {
  const JobId id = Enqueue(1)[0];
  std::vector<GiveBackItem> items{{Claim(1)[0].token, absl::ZeroDuration()}};
  auto released = store_->GiveBack(queue_, Verb::kRelease, items);
  ASSERT_TRUE(released.ok()) << released.status();
  EXPECT_EQ(released->items[0].job_state, JobState::kReady);
  ASSERT_EQ(released->ready.size(), 1u);
  EXPECT_EQ(released->ready[0].low.id, id.seq);
  items[0] = {Claim(1)[0].token, absl::Hours(1)};
  auto snoozed = store_->GiveBack(queue_, Verb::kSnooze, items);
  EXPECT_EQ(snoozed->items[0].job_state, JobState::kScheduled);
  const Job job = *store_->Get(id);
  EXPECT_EQ(job.releases, 1);
  EXPECT_EQ(job.snoozes, 1);
  EXPECT_EQ(job.failures, 0);
  EXPECT_EQ(job.attempt, 2);
}

TEST_F(StoreLifecycleTest, ExtendMovesTheEndForwardOnly) {
  Enqueue(1);
  const ClaimedJob job = Claim(1, absl::Seconds(10))[0];
  std::vector<ExtendItem> items{{job.token, absl::Seconds(60), std::nullopt}};
  auto extended = store_->Extend(queue_, items);
  ASSERT_TRUE(extended.ok()) << extended.status();
  EXPECT_EQ((*extended)[0].state, TokenState::kWon);
  EXPECT_GT((*extended)[0].remaining, absl::Seconds(55));
  items[0].duration = absl::Seconds(1);
  items[0].progress = Progress{0.5, "half"};
  extended = store_->Extend(queue_, items);
  EXPECT_GT((*extended)[0].remaining, absl::Seconds(50));
  EXPECT_EQ(store_->Get(job.job.id)->progress->message, "half");
  EXPECT_EQ(Complete(job.token).state, TokenState::kWon);
  EXPECT_EQ((*store_->Extend(queue_, items))[0].state, TokenState::kUnresolved);
}

TEST_F(StoreLifecycleTest, CancelEndsEveryLiveStateAndTellsTheHolder) {
  const auto ids = Enqueue(2);
  const ClaimedJob held = Claim(1)[0];
  const std::string before = store_->ReadStart()->snapshot;
  auto cancelled = store_->Cancel(queue_, ids, "not needed");
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  EXPECT_EQ(cancelled->items[0].state, CancelOutcome::State::kCancelled);
  EXPECT_EQ(cancelled->items[0].previous, JobState::kLeased);
  EXPECT_EQ(cancelled->items[1].previous, JobState::kReady);
  EXPECT_EQ(Resolve(Verb::kComplete, held.token), TokenState::kCancelled);
  auto events = store_->ReadEvents(before);
  ASSERT_TRUE(events.ok()) << events.status();
  ASSERT_EQ(events->notices.size(), 1u);
  EXPECT_EQ(events->notices[0].worker, "w");
  EXPECT_EQ(events->notices[0].reason, "not needed");
  // Again: the same answer; and an unknown one is told apart.
  std::vector<JobId> more{ids[0], {queue_, ids[0].day, 999'999}};
  auto again = store_->Cancel(queue_, more, "");
  EXPECT_EQ(again->items[0].state, CancelOutcome::State::kCancelled);
  EXPECT_EQ(again->items[0].previous, JobState::kCancelled);
  EXPECT_EQ(again->items[1].state, CancelOutcome::State::kNotFound);
}

TEST_F(StoreLifecycleTest, AnExpiredLeaseIsReapedOnceAndBurnsACrash) {
  const JobId id = Enqueue(1)[0];
  const ClaimedJob job = Claim(1, absl::Milliseconds(1))[0];
  const std::vector<LeaseRef> refs{{queue_, id.seq, job.token.number}};
  Sql("select pg_sleep(0.01)");
  std::vector<ReadyRange> ready;
  auto reaped = store_->Reap(queue_, refs, &ready);
  ASSERT_TRUE(reaped.ok()) << reaped.status();
  EXPECT_FALSE((*reaped)[0].remaining);
  EXPECT_FALSE((*reaped)[0].gone);
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(Resolve(Verb::kComplete, job.token), TokenState::kLeaseLost);
  EXPECT_TRUE((*store_->Reap(queue_, refs, &ready))[0].gone);
  EXPECT_EQ(store_->Get(id)->crashes, 1);
}

TEST_F(StoreLifecycleTest, TheCrashBudgetMakesADeadLetter) {
  NewJob spec = Spec();
  spec.crash_budget = 1;
  const std::vector<NewJob> specs{spec};
  const JobId id = store_->Enqueue(queue_, specs)->jobs[0].id;
  const ClaimedJob job = Claim(1, absl::Milliseconds(1))[0];
  Sql("select pg_sleep(0.01)");
  const std::vector<LeaseRef> refs{{queue_, id.seq, job.token.number}};
  std::vector<ReadyRange> ready;
  EXPECT_TRUE((*store_->Reap(queue_, refs, &ready))[0].discarded);
  EXPECT_EQ(store_->Get(id)->state, JobState::kDiscarded);
  EXPECT_EQ(store_->Get(id)->error->type, "LeaseExpired");
}

TEST_F(StoreLifecycleTest, ALeaseThatRanOutInAnOutageIsForgiven) {
  const JobId id = Enqueue(1)[0];
  const ClaimedJob job = Claim(1, absl::Milliseconds(300))[0];
  Sql("select pg_sleep(0.35)");
  ASSERT_TRUE(store_->RecordOutage(absl::Milliseconds(250)).ok());
  const std::vector<LeaseRef> refs{{queue_, id.seq, job.token.number}};
  std::vector<ReadyRange> ready;
  // A third of the lease more, for its worker to come back.
  auto early = store_->Reap(queue_, refs, &ready);
  ASSERT_TRUE((*early)[0].remaining);
  Sql("select pg_sleep(0.12)");
  auto late = store_->Reap(queue_, refs, &ready);
  EXPECT_TRUE((*late)[0].forgiven);
  EXPECT_EQ(store_->Get(id)->crashes, 0);
}

TEST_F(StoreLifecycleTest, IdempotencyKeysMakeOneJob) {
  NewJob spec = Spec();
  spec.idempotency_key = "a";
  NewJob other = Spec("other");
  other.idempotency_key = "a";
  NewJob second = Spec();
  second.idempotency_key = "b";
  const std::vector<NewJob> batch{second, spec, spec, other};
  auto first = store_->EnqueueKeyed(queue_, batch);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->jobs[0].status.ok());
  EXPECT_FALSE(first->jobs[1].duplicate);
  EXPECT_TRUE(first->jobs[2].duplicate);
  EXPECT_EQ(first->jobs[2].id, first->jobs[1].id);
  EXPECT_EQ(DetailsOf(first->jobs[3].status).reason, "IDEMPOTENCY_CONFLICT");
  auto again = store_->EnqueueKeyed(queue_, batch);
  EXPECT_TRUE(again->jobs[1].duplicate);
  EXPECT_EQ(again->jobs[1].id, first->jobs[1].id);
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "2");
}

TEST_F(StoreLifecycleTest, AnUncommittedKeyHoldsOnlyItsOwnItem) {
  auto other = store::postgres::Connection::Open(database_.url(), "other", absl::Seconds(5)).value();
  store::postgres::Transaction tx(*other, {absl::Seconds(30)});
  ASSERT_TRUE(
      tx.Run("select tenure.enqueue('q', 'k', '{}', idempotency_key => 'held')", store::postgres::Params()).ok());
  std::vector<NewJob> batch;
  for (const char* key : {"a", "b", "held", "z"}) {
    batch.push_back(Spec());
    batch.back().idempotency_key = key;
  }
  auto result = store_->EnqueueKeyed(queue_, batch);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->jobs[0].status.ok());
  EXPECT_TRUE(result->jobs[1].status.ok());
  EXPECT_EQ(DetailsOf(result->jobs[2].status).reason, "KEY_BUSY");
  EXPECT_TRUE(result->jobs[3].status.ok());
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

TEST_F(StoreLifecycleTest, FollowUpsAreEnqueuedOnlyIfTheCompleteWins) {
  Enqueue(1);
  const LeaseToken token = Claim(1)[0].token;
  const int32_t next = store_->EnsureQueue("next", true)->id;
  std::vector<CompleteItem> items{{token, std::nullopt, {{next, Spec("1")}, {queue_, Spec("2")}, {next, Spec("3")}}}};
  auto settled = store_->Complete(queue_, items);
  ASSERT_TRUE(settled.ok()) << settled.status();
  ASSERT_EQ(settled->items[0].follow_ups.size(), 3u);
  EXPECT_EQ(store_->Get(settled->items[0].follow_ups[1])->payload.data, "2");
  EXPECT_EQ(store_->Get(settled->items[0].follow_ups[2])->payload.data, "3");
  EXPECT_EQ(settled->items[0].follow_ups[2].queue, next);
  settled = store_->Complete(queue_, items);
  EXPECT_EQ(settled->items[0].state, TokenState::kUnresolved);
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "3");
}

TEST_F(StoreLifecycleTest, TheSqlFunctionsWriteWhatTheRpcsWrite) {
  const std::string id = Sql("select tenure.enqueue('q', 'k', '{\"n\": 1.0}', headers => '{\"h\":\"v\"}')");
  auto claimed = Claim(1);
  ASSERT_EQ(claimed.size(), 1u);
  EXPECT_EQ(claimed[0].job.id.ToString(), id);
  EXPECT_EQ(claimed[0].job.payload.data, "{\"n\": 1.0}");
  EXPECT_EQ(claimed[0].job.headers.at("h"), "v");
  EXPECT_EQ(Sql("select tenure.complete('" + claimed[0].token.ToString() + "', 'ok'::bytea)"), id);
  Enqueue(1);
  const LeaseToken token = Claim(1)[0].token;
  EXPECT_EQ(Complete(token, Payload{"ok", "application/octet-stream"}).state, TokenState::kWon);
  // The same columns are set, and the same verb is replayed.
  EXPECT_EQ(
      Sql("select count(distinct (state, settled_verb, result, result_type, attempt, token)) from tenure.history"),
      "1");
  EXPECT_EQ(Resolve(Verb::kComplete, claimed[0].token), TokenState::kReplayed);
  EXPECT_EQ(Sql("select sum(leased)::text || ',' || sum(completed) from tenure.event"), "0,2");
}

TEST_F(StoreLifecycleTest, TenureEnqueueRefusesWhatTheApiRefuses) {
  const std::pair<std::string, std::string> bad[] = {
      {"'no blank', 'k', '{}'", "queue"},
      {"null, 'k', '{}'", "queue"},
      {"'q', 'no blank', '{}'", "kind"},
      {"'q', null, '{}'", "kind"},
      {"'q', 'k', '{}', priority => 101", "priority"},
      {"'q', 'k', repeat('x', 1048577)", "payload"},
      {"'q', 'k', '{}', max_attempts => 0", "max_attempts"},
      {"'q', 'k', '{}', due_at => now(), delay => '1s'", "due_at, delay"},
      {"'q', 'k', '{}', due_at => 'infinity'", "due_at"},
      {"'q', 'k', '{}', due_at => '-infinity'", "due_at"},
      {"'q', 'k', '{}', due_at => now() + interval '11 years'", "due_at"},
      {"'q', 'k', '{}', delay => '-1s'", "delay"},
      {"'q', 'k', '{}', delay => '11 years'", "delay"},
      {"'q', 'k', '{}', expires_at => 'infinity'", "expires_at"},
      {"'q', 'k', '{}', expires_at => now() + interval '101 years'", "expires_at"},
      {"'q', 'k', '{}', headers => '[]'", "headers"},
      {"'q', 'k', '{}', headers => '\"x\"'", "headers"},
      {"'q', 'k', '{}', headers => '{\"a\":1}'", "headers"},
      {"'q', 'k', '{}', headers => '{\"a\":null}'", "headers"},
      {"'q', 'k', '{}', headers => '{\"\":\"x\"}'", "headers"},
      {"'q', 'k', '{}', headers => jsonb_build_object('a', repeat('x', 16384))", "headers"},
      {"'q', 'k', '{}', headers => (select jsonb_object_agg(n, 'x') from generate_series(1, 65) n)", "headers"},
      {"'q', 'k', '{}', content_type => repeat('x', 256)", "content_type"},
      {"'q', 'k', '{}', tenant => repeat('x', 256)", "tenant"},
      {"'q', 'k', '{}', priority => null", "priority"},
      {"'q', 'k', '{}', idempotency_key => 'a', idempotency_retention => '0s'", "idempotency_retention"},
      {"'q', 'k', '{}', idempotency_key => ''", "idempotency_key"},
      {"'q', 'k', '{}', idempotency_key => repeat('x', 256)", "idempotency_key"},
  };
  auto connection = store::postgres::Connection::Open(database_.url(), "application", absl::Seconds(5)).value();
  for (const auto& [arguments, field] : bad) {
    const std::string sql = "select tenure.enqueue(" + arguments + ")";
    postgres::Transaction tx(*connection, {absl::Seconds(10)});
    const auto refused = tx.Run(sql, postgres::Params());
    ASSERT_FALSE(refused.ok()) << arguments;
    EXPECT_NE(refused.status().message().find("tenure.enqueue: " + field + ":"), absl::string_view::npos)
        << arguments << " was told: " << refused.status();
  }
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "0");
  Sql("select tenure.enqueue('q', 'k', '{}', due_at => now() - interval '1 day', expires_at => now() + interval '1 "
      "day')");
  EXPECT_EQ(Claim(1).size(), 1u);
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

TEST_F(StoreLifecycleTest, CountsFoldExactly) {
  Enqueue(5);
  auto claimed = Claim(3);
  Complete(claimed[0].token);
  std::vector<FailItem> fails{{claimed[1].token, {"x"}, false, std::nullopt}};
  ASSERT_TRUE(store_->Fail(queue_, fails).ok());
  auto fence = store_->AcquireLeader("stats", replica_, absl::Seconds(30));
  ASSERT_TRUE(fence.ok() && fence->has_value()) << fence.status();
  ASSERT_TRUE(store_->FoldStats(**fence).ok());
  ASSERT_TRUE(store_->FoldStats(**fence).ok());
  auto start = store_->ReadStart();
  ASSERT_TRUE(start.ok()) << start.status();
  const QueueCounts& counts = start->counts.at(queue_);
  EXPECT_EQ(counts.enqueued, 5);
  EXPECT_EQ(counts.ready, 2);
  EXPECT_EQ(counts.leased, 1);
  EXPECT_EQ(counts.scheduled, 1);
  EXPECT_EQ(counts.completed, 1);
  EXPECT_EQ(start->ready, (std::vector<std::pair<int32_t, int16_t>>{{queue_, 0}}));
}

// Also after hours in which nothing happened but the rotation of events.
TEST_F(StoreLifecycleTest, AReplicaCanStartWheneverEventsHaveBeenRotated) {
  auto fence = store_->AcquireLeader("stats", replica_, absl::Seconds(30));
  ASSERT_TRUE(fence.ok() && fence->has_value()) << fence.status();
  for (int rotation = 0; rotation < 6; ++rotation) {
    if (rotation == 3) Enqueue(1);
    const std::string before = Sql("select horizon from tenure.event_fold");
    Sql("update tenure.event_fold set rotated_at = now() - interval '11 minutes'");
    ASSERT_TRUE(store_->FoldStats(**fence).ok());
    EXPECT_NE(Sql("select horizon from tenure.event_fold"), before) << "it was not rotated";
    const auto start = store_->ReadStart();
    ASSERT_TRUE(start.ok()) << start.status();
    const auto events = store_->ReadEvents(start->snapshot);
    EXPECT_TRUE(events.ok()) << "after rotation " << rotation << ": " << events.status();
  }
}

TEST_F(StoreLifecycleTest, ALedWriteIsRefusedWhenTheTermIsOver) {
  auto first = store_->AcquireLeader("promoter", replica_, absl::Milliseconds(1));
  ASSERT_TRUE(first.ok() && first->has_value());
  Sql("select pg_sleep(0.01)");
  auto second = store_->AcquireLeader("promoter", replica_, absl::Seconds(30));
  ASSERT_TRUE(second.ok() && second->has_value());
  EXPECT_EQ((*second)->term, (*first)->term + 1);
  NewJob spec = Spec();
  spec.delay = absl::Milliseconds(1);
  const std::vector<NewJob> specs{spec};
  ASSERT_TRUE(store_->Enqueue(queue_, specs).ok());
  Sql("select pg_sleep(0.01)");
  EXPECT_EQ(store_->Promote(**first, absl::InfinitePast(), 100)->promoted, 0);
  auto promoted = store_->Promote(**second, absl::InfinitePast(), 100);
  ASSERT_TRUE(promoted.ok()) << promoted.status();
  EXPECT_EQ(promoted->promoted, 1);
  EXPECT_EQ(DetailsOf(store_->RenewLeader(**first, absl::Seconds(1))).reason, "TERM_OVER");
}

TEST_F(StoreLifecycleTest, JobsThatDidNotStartInTimeExpire) {
  NewJob spec = Spec();
  spec.ttl = absl::Milliseconds(1);
  const std::vector<NewJob> specs{spec};
  const JobId id = store_->Enqueue(queue_, specs)->jobs[0].id;
  Sql("select pg_sleep(0.01)");
  auto claimed = store_->Claim(Batch(1));
  EXPECT_TRUE(claimed->jobs.empty());
  EXPECT_TRUE(claimed->missed.empty());
  auto fence = store_->AcquireLeader("lifecycle", replica_, absl::Seconds(30));
  EXPECT_EQ(*store_->ExpireJobs(**fence, 10), 1);
  EXPECT_EQ(store_->Get(id)->state, JobState::kExpired);
}

TEST_F(StoreLifecycleTest, ListPagesThroughLiveAndEnded) {
  const auto ids = Enqueue(7);
  for (const ClaimedJob& job : Claim(3)) Complete(job.token);
  ListFilter filter;
  filter.states = {JobState::kReady, JobState::kCompleted};
  filter.page_size = 2;
  std::set<int64_t> seen;
  for (int pages = 0; pages < 20; ++pages) {
    auto page = store_->List(filter);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const Job& job : page->jobs) EXPECT_TRUE(seen.insert(job.id.seq).second);
    filter.page_token = page->next_page_token;
    if (filter.page_token.empty()) break;
  }
  EXPECT_EQ(seen.size(), 7u);
}

TEST_F(StoreLifecycleTest, AMissingPartitionIsMadeOnDemand) {
  Enqueue(1);
  const LeaseToken token = Claim(1)[0].token;
  Sql("do $$ declare t text; begin for t in select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid "
      "join pg_class p on "
      "p.oid = i.inhparent where p.relname in ('history', 'payload', 'dead_letter') loop execute 'drop table tenure.' "
      "|| t; end loop; end $$");
  EXPECT_EQ(Complete(token).state, TokenState::kWon);
  EXPECT_EQ(Sql("select count(*) from tenure.history"), "1");
  const std::vector<NewJob> specs{Spec(std::string(5000, 'x'))};
  EXPECT_TRUE(store_->Enqueue(queue_, specs).ok());
}

TEST_F(StoreLifecycleTest, AnIdWithAnotherQueueOrDayIsNoOnesId) {
  const auto ids = Enqueue(2);
  Complete(Claim(1)[0].token);
  const int32_t elsewhere = store_->EnsureQueue("elsewhere", true)->id;
  for (const JobId& id : ids) {
    for (const JobId& wrong : {JobId{elsewhere, id.day, id.seq}, JobId{queue_, 1, id.seq}}) {
      const std::vector<JobId> one{wrong};
      EXPECT_EQ(store_->Cancel(wrong.queue, one, "")->items[0].state, CancelOutcome::State::kNotFound);
      EXPECT_EQ(DetailsOf(store_->Retry(wrong, "")->status).reason, "JOB_NOT_FOUND");
      auto named = store_->ClaimNamed(wrong.queue, replica_, "w2", absl::Seconds(30), "", one, 3 << 20);
      ASSERT_TRUE(named.ok()) << named.status();
      EXPECT_EQ(DetailsOf((*named)[0].refusal).reason, "JOB_NOT_FOUND");
      EXPECT_EQ(DetailsOf(store_->Get(wrong).status()).reason, "JOB_NOT_FOUND");
    }
  }
  EXPECT_EQ(store_->Get(ids[0])->state, JobState::kCompleted);
  EXPECT_EQ(store_->Get(ids[1])->state, JobState::kReady);
}

TEST_F(StoreLifecycleTest, APoolerIsNoticed) {
  auto info = store_->Inspect();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->pooled, tenure::testing::ThroughPooler());
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
