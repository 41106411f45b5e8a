// The store's methods one by one on a real PostgreSQL, but for claims: what each writes, answers and refuses.
#include <algorithm>
#include <set>

#include "server/base/status.h"
#include "tests/support/store_lifecycle_fixture.h"

namespace tenure::store {
namespace {

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

TEST_F(StoreLifecycleTest, JobsWithKeysGetTheirIdsInTheOrderOfTheCall) {
  std::vector<NewJob> batch;
  for (const char* key : {"z", "m", "é", "a", "B"}) {
    batch.push_back(Spec());
    batch.back().idempotency_key = key;
  }
  const auto enqueued = store_->EnqueueKeyed(queue_, batch);
  ASSERT_TRUE(enqueued.ok()) << enqueued.status();
  for (size_t i = 1; i < batch.size(); ++i) EXPECT_GT(enqueued->jobs[i].id.seq, enqueued->jobs[i - 1].id.seq) << i;
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

// Jobs of other queues are read past: a page is not empty because there are thousands of them.
TEST_F(StoreLifecycleTest, APageOfAQuietQueueIsNotEmpty) {
  const JobId live = Enqueue(1)[0];
  Complete(Claim(1)[0].token);
  const JobId second = Enqueue(1)[0];
  const int32_t busy = store_->EnsureQueue("busy", true)->id;
  Sql(absl::StrCat(
      "insert into tenure.job (id, queue_id, state, place, priority, rank, day, attempt, failures, crashes, releases, "
      "snoozes, due_at, created_at, updated_at, kind, payload_size, payload) select nextval('tenure.job_id'), ",
      busy,
      ", 3, 3, 0, 0, tenure.today(), 0, 0, 0, 0, 0, now(), now(), now(), 'k', 2, '{}' from "
      "generate_series(1, 12000)"));
  ListFilter filter;
  filter.queue = queue_;
  filter.states = {JobState::kReady, JobState::kCompleted};
  const auto page = store_->List(filter);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->jobs.size(), 2u);
  EXPECT_EQ(page->jobs[0].id, second);
  EXPECT_EQ(page->jobs[1].id, live);
  EXPECT_EQ(page->next_page_token, "");
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

}  // namespace
}  // namespace tenure::store
