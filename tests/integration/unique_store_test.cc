// Unique keys in the store: which job counts, what each policy does with it, and that nothing else changes.
#include <libpq-fe.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/fair_choice.h"
#include "tests/support/store_fixture.h"

namespace tenure::store {
namespace {

using JobStates = std::vector<JobState>;

class UniqueStoreTest : public tenure::testing::StoreTest {
 protected:
  UniqueStoreTest() {
    queue_ = store_->EnsureQueue("q", true)->id;
    granter_ = *store_->RegisterReplica("granter", "test");
    fence_ = **store_->AcquireLeader("promoter", granter_, absl::Hours(1));
  }

  static JobStates Unclaimed() { return {JobState::kScheduled, JobState::kBlocked, JobState::kReady}; }
  static JobStates Live() {
    return {JobState::kScheduled, JobState::kBlocked, JobState::kReady, JobState::kLeased, JobState::kSuspended};
  }
  static NewJob Job(const std::string& key, OnConflict policy = OnConflict::kReturn, const std::string& data = "{}") {
    NewJob job;
    job.kind = "k";
    job.payload = {data, "application/json"};
    const bool keeps = policy == OnConflict::kReturn || policy == OnConflict::kReject;
    job.unique = Unique{key, false, keeps ? Live() : Unclaimed(), absl::ZeroDuration(), policy};
    return job;
  }
  EnqueueResult Enqueue(const std::vector<NewJob>& jobs) {
    auto result = store_->EnqueueUnique(queue_, jobs);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) {
      EnqueueResult none;
      none.jobs.resize(jobs.size());
      return none;
    }
    return *std::move(result);
  }
  EnqueueOutcome EnqueueOne(const NewJob& job) { return Enqueue({job}).jobs[0]; }
  std::vector<ClaimedJob> Claim(int jobs = 10) {
    ClaimBatch batch;
    batch.queue = queue_;
    batch.replica = granter_;
    batch.ranges = {{0, kLowestKey, kHighestKey}};
    batch.workers = {"w"};
    batch.slots.assign(static_cast<size_t>(jobs), ClaimSlot{0, -1, absl::Seconds(30)});
    auto claimed = store_->Claim(batch);
    EXPECT_TRUE(claimed.ok()) << claimed.status();
    return claimed.ok() ? claimed->jobs : std::vector<ClaimedJob>();
  }
  SettleResult Complete(const LeaseToken& token, std::vector<FollowUp> follow_ups = {}) {
    const std::vector<CompleteItem> items{{token, std::nullopt, std::move(follow_ups)}};
    auto result = store_->Complete(queue_, items);
    EXPECT_TRUE(result.ok() && result->items[0].state == TokenState::kWon) << result.status();
    return result.ok() ? *std::move(result) : SettleResult();
  }
  void Fail(const LeaseToken& token, bool final, absl::Duration retry_after = absl::ZeroDuration()) {
    const std::vector<FailItem> items{{token, {"boom"}, final, retry_after, std::nullopt, ""}};
    auto result = store_->Fail(queue_, items);
    EXPECT_TRUE(result.ok() && result->items[0].state == TokenState::kWon) << result.status();
  }
  std::string States() {
    return Sql("select string_agg(state::text || '/' || coalesce(gate::text, '-'), ' ' order by id) from tenure.job");
  }
  std::string Count(const std::string& state) {
    return Sql(absl::StrCat("select coalesce(sum(", state, "), 0) from tenure.event"));
  }

  int32_t queue_ = 0;
  int32_t granter_ = 0;
  Fence fence_;
};

TEST_F(UniqueStoreTest, TheExistingOneIsReturnedUntilItHasEnded) {
  const EnqueueOutcome first = EnqueueOne(Job("a"));
  EXPECT_FALSE(first.existing);
  EXPECT_EQ(first.state, JobState::kReady);
  const store::Job stored = *store_->Get(first.id);
  EXPECT_EQ(stored.unique_key, "a");
  EXPECT_FALSE(stored.unique_by_kind);
  for (const char* when : {"ready", "leased"}) {
    SCOPED_TRACE(when);
    const EnqueueOutcome again = EnqueueOne(Job("a", OnConflict::kReturn, "other"));
    EXPECT_TRUE(again.existing);
    EXPECT_EQ(again.id, first.id);
    if (std::string_view(when) == "ready") {
      ASSERT_EQ(Claim().size(), 1u);
    }
  }
  EXPECT_FALSE(EnqueueOne(Job("b")).existing) << "another key";
  ASSERT_TRUE(store_->Cancel(queue_, std::vector<JobId>{first.id}, "").ok());
  EXPECT_EQ(store_->Get(first.id)->unique_key, "a") << "history keeps it";
  const EnqueueOutcome next = EnqueueOne(Job("a"));
  EXPECT_FALSE(next.existing);
  EXPECT_NE(next.id, first.id);
  EXPECT_EQ(Count("enqueued"), "3");
}

TEST_F(UniqueStoreTest, TheSecondOfABatchSeesTheFirst) {
  NewJob later = Job("debounced", OnConflict::kReplaceAndReschedule, "2");
  later.delay = absl::Hours(1);
  const EnqueueResult result = Enqueue({Job("a"), Job("b"), Job("a"), Job("a", OnConflict::kReject),
                                        Job("debounced", OnConflict::kReplaceAndReschedule, "1"), later,
                                        Job("rep", OnConflict::kReplace, "1"), Job("rep", OnConflict::kReplace, "2")});
  EXPECT_FALSE(result.jobs[0].existing);
  EXPECT_FALSE(result.jobs[1].existing);
  EXPECT_TRUE(result.jobs[2].existing);
  EXPECT_EQ(result.jobs[2].id, result.jobs[0].id);
  EXPECT_EQ(DetailsOf(result.jobs[3].status).reason, "UNIQUE_CONFLICT");
  EXPECT_EQ(DetailsOf(result.jobs[3].status).metadata.at("job_id"), result.jobs[0].id.ToString());
  EXPECT_LT(result.jobs[0].id.seq, result.jobs[1].id.seq) << "ids are in the order of the items";
  EXPECT_EQ(result.jobs[5].id, result.jobs[4].id);
  EXPECT_EQ(store_->Get(result.jobs[4].id)->payload.data, "2");
  EXPECT_EQ(store_->Get(result.jobs[4].id)->state, JobState::kScheduled);
  EXPECT_EQ(store_->Get(result.jobs[6].id)->payload.data, "2");
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "4");
  ASSERT_TRUE(result.earliest_due);
  EXPECT_GT(*result.earliest_due, absl::Minutes(59));
}

TEST_F(UniqueStoreTest, ScopesKnowNothingOfEachOther) {
  auto of_kind = [](const std::string& kind) {
    NewJob job = Job("a");
    job.kind = kind;
    job.unique->by_kind = true;
    return job;
  };
  NewJob other_kind = Job("a");
  other_kind.kind = "other";
  const EnqueueResult result =
      Enqueue({Job("a"), other_kind, of_kind("k"), of_kind("other"), of_kind("k"), Job("k:k a")});
  EXPECT_EQ(result.jobs[1].id, result.jobs[0].id) << "the queue's scope does not ask for the kind";
  EXPECT_FALSE(result.jobs[2].existing);
  EXPECT_FALSE(result.jobs[3].existing);
  EXPECT_EQ(result.jobs[4].id, result.jobs[2].id);
  EXPECT_FALSE(result.jobs[5].existing);
  const store::Job stored = *store_->Get(result.jobs[2].id);
  EXPECT_TRUE(stored.unique_by_kind);
  EXPECT_EQ(stored.unique_key, "a");
  const int32_t elsewhere = store_->EnsureQueue("elsewhere", true)->id;
  EXPECT_FALSE(store_->EnqueueUnique(elsewhere, std::vector<NewJob>{Job("a")})->jobs[0].existing);
}

// Nothing that a job does itself conflicts with its own key, nor with one that was made after it.
TEST_F(UniqueStoreTest, StatesSayWhenItCountsAndNoRetryConflicts) {
  NewJob spec = Job("a");
  spec.unique->states = {JobState::kReady};
  const JobId first = EnqueueOne(spec).id;
  EXPECT_TRUE(EnqueueOne(spec).existing);
  auto claimed = Claim();
  const EnqueueOutcome second = EnqueueOne(spec);
  EXPECT_FALSE(second.existing) << "a leased one does not count";
  Fail(claimed[0].token, false);
  EXPECT_EQ(store_->Get(first)->state, JobState::kReady) << "its retry is no conflict";
  claimed = Claim();
  ASSERT_EQ(claimed.size(), 2u);
  const std::vector<GiveBackItem> back{{claimed[0].token, absl::ZeroDuration()}};
  EXPECT_EQ(store_->GiveBack(queue_, Verb::kRelease, back)->items[0].state, TokenState::kWon);
  const std::vector<GiveBackItem> snoozed{{claimed[1].token, absl::Hours(1)}};
  EXPECT_EQ(store_->GiveBack(queue_, Verb::kSnooze, snoozed)->items[0].state, TokenState::kWon);
  const EnqueueOutcome third = EnqueueOne(Job("a"));
  EXPECT_TRUE(third.existing);
  EXPECT_EQ(third.id, second.id) << "the last one that was accepted holds the key";
}

TEST_F(UniqueStoreTest, ReplaceChangesWhatHasNotBeenClaimed) {
  NewJob first = Job("a", OnConflict::kReplace, "1");
  first.headers = {{"h", "1"}};
  first.priority = 0;
  const EnqueueOutcome made = EnqueueOne(first);
  NewJob second = Job("a", OnConflict::kReplace, std::string(5000, 'x'));
  second.payload.content_type = "text/plain";
  second.headers = {{"h", "2"}, {"i", "3"}};
  second.priority = 7;
  EXPECT_TRUE(EnqueueOne(second).existing);
  store::Job stored = *store_->Get(made.id);
  EXPECT_EQ(stored.payload.data, second.payload.data) << "a large one is kept apart";
  EXPECT_EQ(stored.payload.content_type, "text/plain");
  EXPECT_EQ(stored.headers, second.headers);
  EXPECT_EQ(stored.priority, 0) << "all else stays";
  NewJob large = Job("a", OnConflict::kReplace, std::string(6000, 'y'));
  EnqueueOne(large);
  EXPECT_EQ(store_->Get(made.id)->payload.data, large.payload.data);
  EXPECT_TRUE(store_->Get(made.id)->headers.empty());
  EnqueueOne(Job("a", OnConflict::kReplace, "small"));
  auto claimed = Claim();
  ASSERT_EQ(claimed.size(), 1u);
  EXPECT_EQ(claimed[0].job.payload.data, "small");
  // One that runs cannot be changed any more, and the update must not be lost.
  const EnqueueOutcome next = EnqueueOne(Job("a", OnConflict::kReplace, "next"));
  EXPECT_FALSE(next.existing);
  Fail(claimed[0].token, false, absl::Hours(1));
  EXPECT_EQ(EnqueueOne(Job("a", OnConflict::kReplace, "last")).id, next.id);
  EXPECT_EQ(store_->Get(next.id)->payload.data, "last");
  EXPECT_EQ(store_->Get(made.id)->payload.data, "small");
}

TEST_F(UniqueStoreTest, RescheduleDebounces) {
  NewJob spec = Job("a", OnConflict::kReschedule, "1");
  const EnqueueOutcome first = EnqueueOne(spec);
  EXPECT_EQ(first.state, JobState::kReady);
  NewJob later = Job("a", OnConflict::kReschedule, "2");
  later.delay = absl::Hours(1);
  EnqueueResult result = Enqueue({later});
  EXPECT_TRUE(result.jobs[0].existing);
  EXPECT_EQ(result.jobs[0].state, JobState::kScheduled);
  ASSERT_TRUE(result.earliest_due);
  EXPECT_GT(*result.earliest_due, absl::Minutes(59));
  EXPECT_EQ(States(), "1/-");
  EXPECT_EQ(store_->Get(first.id)->payload.data, "1") << "only the due time";
  EXPECT_TRUE(Claim().empty());
  EXPECT_EQ(Count("scheduled"), "1");
  EXPECT_EQ(Count("ready"), "0");
  EXPECT_EQ(Sql("select due_at > now() + interval '59 min' from tenure.event where due_at is not null order by id desc "
                "limit 1"),
            "t")
      << "the promoter is told";
  later.delay = absl::Hours(2);
  Enqueue({later});
  EXPECT_EQ(Sql("select due_at > now() + interval '119 min' from tenure.job"), "t");
  // Due now: at once, where a claim looks for it.
  result = Enqueue({spec});
  EXPECT_TRUE(result.jobs[0].existing);
  ASSERT_EQ(result.ready.size(), 1u);
  EXPECT_EQ(result.ready[0].low.id, first.id.seq);
  EXPECT_EQ(result.ready[0].low, result.ready[0].high);
  EXPECT_EQ(Count("scheduled"), "0");
  EXPECT_EQ(Count("ready"), "1");
  result = Enqueue({spec});
  EXPECT_TRUE(result.ready.empty()) << "ready it was";
  EXPECT_EQ(Claim().size(), 1u);
}

TEST_F(UniqueStoreTest, ARescheduledJobGivesItsSlotsBackAndPassesItsGatesAgain) {
  ASSERT_TRUE(store_->SetLimit(queue_, LimitScope::kKey, "key", {1, std::nullopt}).ok());
  NewJob spec = Job("a", OnConflict::kReschedule);
  spec.concurrency_keys = {"key"};
  NewJob other = Job("b", OnConflict::kReschedule);
  other.concurrency_keys = {"key"};
  EnqueueResult result = Enqueue({spec, other});
  EXPECT_EQ(result.blocked, (GateNames{"kkey", "q", "kkey", "q"}));
  const GateNames names{"kkey"};
  ASSERT_EQ(store_->Admit(queue_, names, 10, FairWindow::kLeast)->admitted, 1);
  EXPECT_EQ(States(), "3/0 2/2");
  spec.delay = absl::Hours(1);
  result = Enqueue({spec});
  EXPECT_EQ(States(), "1/- 2/2");
  EXPECT_EQ(result.blocked, (GateNames{"kkey", "q"})) << "its slot is free";
  EXPECT_EQ(store_->Admit(queue_, names, 10, FairWindow::kLeast)->admitted, 1);
  EXPECT_EQ(States(), "1/- 3/0");
  spec.delay = std::nullopt;
  result = Enqueue({spec});
  EXPECT_EQ(result.jobs[0].state, JobState::kBlocked);
  EXPECT_EQ(States(), "2/2 3/0");
  EXPECT_EQ(result.blocked, (GateNames{"kkey", "q"}));
  EXPECT_TRUE(result.ready.empty());
  // A blocked one goes back to scheduled too.
  spec.delay = absl::Hours(1);
  EXPECT_EQ(Enqueue({spec}).jobs[0].state, JobState::kScheduled);
  EXPECT_EQ(States(), "1/- 3/0");
  EXPECT_EQ(Count("blocked"), "0");
  EXPECT_EQ(Count("ready"), "1");
  EXPECT_EQ(Count("scheduled"), "1");
}

TEST_F(UniqueStoreTest, AHolderWhoseTimeToStartIsOverCountsNoMore) {
  NewJob spec = Job("a", OnConflict::kReplace);
  spec.ttl = absl::Hours(1);
  const JobId first = EnqueueOne(spec).id;
  Sql("update tenure.job set expires_at = now() - interval '1 second'");
  const EnqueueOutcome second = EnqueueOne(spec);
  EXPECT_FALSE(second.existing) << "its update would be lost with the holder";
  EXPECT_NE(second.id, first);
  EXPECT_TRUE(EnqueueOne(Job("a")).existing);
  Sql("update tenure.job set expires_at = now() - interval '1 second'");
  Sql("select tenure.enqueue('q', 'k', unique_key => 'a')");
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "3");
}

TEST_F(UniqueStoreTest, ARescheduledJobExpiresWhenTheNewOneWouldHave) {
  QueueSettings settings;
  settings.start_within = absl::Minutes(1);
  ASSERT_TRUE(store_->UpdateQueue("q", settings, {"start_within"}).ok());
  const auto expires_in = [&] {
    return Sql("select round(extract(epoch from expires_at - now()) / 60) from tenure.job");
  };
  NewJob spec = Job("a", OnConflict::kReschedule);
  Enqueue({spec});
  EXPECT_EQ(expires_in(), "1");
  // Put off again and again it does not expire before it is due.
  spec.delay = absl::Minutes(10);
  Enqueue({spec});
  EXPECT_EQ(expires_in(), "11");
  spec.ttl = absl::Minutes(30);
  Enqueue({spec});
  EXPECT_EQ(expires_in(), "30");
  Sql("select tenure.enqueue('q', 'k', delay => interval '20 minutes', unique_key => 'a', on_conflict => "
      "'reschedule')");
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "1");
  EXPECT_EQ(expires_in(), "21");
}

// It goes back and comes again at the same place: a claim whose cursor is beyond it is told.
TEST_F(UniqueStoreTest, ARescheduledJobIsPromotedAgain) {
  NewJob spec = Job("a", OnConflict::kReschedule);
  const JobId id = EnqueueOne(spec).id;
  spec.due = absl::Now() + absl::Hours(1);
  EnqueueOne(spec);
  Sql("update tenure.job set due_at = now()");
  const auto promoted = store_->Promote(fence_, absl::InfinitePast(), 10);
  ASSERT_TRUE(promoted.ok()) << promoted.status();
  ASSERT_EQ(promoted->ready.size(), 1u);
  EXPECT_EQ(promoted->ready[0].low.id, id.seq);
  EXPECT_EQ(Claim().size(), 1u);
}

TEST_F(UniqueStoreTest, RejectNamesTheHolder) {
  const JobId first = EnqueueOne(Job("a", OnConflict::kReject)).id;
  const EnqueueOutcome refused = EnqueueOne(Job("a", OnConflict::kReject));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(DetailsOf(refused.status).reason, "UNIQUE_CONFLICT");
  EXPECT_EQ(DetailsOf(refused.status).metadata.at("job_id"), first.ToString());
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "1");
}

TEST_F(UniqueStoreTest, APeriodHoldsTheKeyBeyondTheEnd) {
  NewJob spec = Job("a");
  spec.unique->period = absl::Hours(1);
  const JobId first = EnqueueOne(spec).id;
  Complete(Claim()[0].token);
  EXPECT_EQ(EnqueueOne(spec).id, first);
  EXPECT_EQ(EnqueueOne(Job("a")).id, first) << "whoever asks";
  EXPECT_EQ(DetailsOf(EnqueueOne(Job("a", OnConflict::kReject)).status).reason, "UNIQUE_CONFLICT");
  const EnqueueOutcome update = EnqueueOne(Job("a", OnConflict::kReplace));
  EXPECT_FALSE(update.existing) << "no update is lost to a job that has ended";
  Complete(Claim()[0].token);
  EXPECT_EQ(EnqueueOne(Job("a")).id, update.id) << "and the period is not cut short";
  Sql("update tenure.unique_key set held_until = now()");
  EXPECT_FALSE(EnqueueOne(spec).existing);
}

TEST_F(UniqueStoreTest, ARetryByHandTakesItsKeyAgainOrIsRefused) {
  NewJob spec = Job("a");
  spec.unique->period = absl::Hours(1);
  const JobId dead = EnqueueOne(spec).id;
  Fail(Claim()[0].token, true);
  auto again = store_->Retry(dead, "r1");
  ASSERT_TRUE(again.ok() && again->status.ok()) << again.status() << again->status;
  EXPECT_NE(again->id, dead) << "its own period does not hold it up";
  EXPECT_EQ(store_->Get(again->id)->unique_key, "a");
  EXPECT_EQ(store_->Get(again->id)->retry_of, dead.ToString());
  EXPECT_EQ(EnqueueOne(spec).id, again->id) << "it holds the key";
  EXPECT_EQ(store_->Retry(dead, "r1")->id, again->id) << "a repeat";
  const auto refused = store_->Retry(dead, "r2");
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(DetailsOf(refused->status).reason, "UNIQUE_CONFLICT");
  EXPECT_EQ(DetailsOf(refused->status).metadata.at("job_id"), again->id.ToString());
  EXPECT_EQ(DetailsOf(store_->Retry(dead, "")->status).reason, "UNIQUE_CONFLICT");
}

TEST_F(UniqueStoreTest, ARepeatWithItsIdempotencyKeyAnswersAsBefore) {
  NewJob first = Job("a");
  first.idempotency_key = "one";
  NewJob second = Job("a", OnConflict::kReturn, "2");
  second.idempotency_key = "two";
  NewJob refused = Job("a", OnConflict::kReject);
  refused.idempotency_key = "three";
  const EnqueueResult result = Enqueue({first, second, refused, first});
  EXPECT_FALSE(result.jobs[0].duplicate);
  EXPECT_TRUE(result.jobs[1].existing);
  EXPECT_FALSE(result.jobs[1].duplicate);
  EXPECT_EQ(DetailsOf(result.jobs[2].status).reason, "UNIQUE_CONFLICT");
  EXPECT_TRUE(result.jobs[3].duplicate);
  EXPECT_EQ(store_->Get(result.jobs[0].id)->idempotency_key, "one");
  Complete(Claim()[0].token);
  const EnqueueResult repeated = Enqueue({second, first});
  EXPECT_EQ(repeated.jobs[0].id, result.jobs[0].id);
  EXPECT_TRUE(repeated.jobs[0].existing);
  EXPECT_TRUE(repeated.jobs[0].duplicate);
  EXPECT_EQ(repeated.jobs[1].id, result.jobs[0].id);
  EXPECT_FALSE(repeated.jobs[1].existing);
  NewJob other = second;
  other.unique->on_conflict = OnConflict::kReject;
  EXPECT_EQ(DetailsOf(EnqueueOne(other).status).reason, "IDEMPOTENCY_CONFLICT");
  const EnqueueOutcome now_free = EnqueueOne(refused);
  EXPECT_TRUE(now_free.status.ok()) << "a refusal does not use the key up: " << now_free.status;
  EXPECT_FALSE(now_free.duplicate);
}

TEST_F(UniqueStoreTest, FollowUpsHaveUniqueKeysToo) {
  Enqueue({Job("start"), Job("other")});
  const auto claimed = Claim();
  ASSERT_EQ(claimed.size(), 2u);
  NewJob plain = Job("x");
  plain.unique.reset();
  const SettleResult first =
      Complete(claimed[0].token, {{queue_, Job("next")}, {queue_, plain}, {queue_, Job("next")}});
  ASSERT_EQ(first.items[0].follow_ups.size(), 3u);
  EXPECT_EQ(first.items[0].follow_ups[0], first.items[0].follow_ups[2]);
  EXPECT_NE(first.items[0].follow_ups[0], first.items[0].follow_ups[1]);
  // Its own key is free by then.
  const SettleResult second = Complete(claimed[1].token, {{queue_, Job("next", OnConflict::kReplace, "new")},
                                                          {queue_, Job("other", OnConflict::kReplace)}});
  EXPECT_EQ(second.items[0].follow_ups[0], first.items[0].follow_ups[0]);
  EXPECT_EQ(store_->Get(first.items[0].follow_ups[0])->payload.data, "new");
  EXPECT_NE(second.items[0].follow_ups[1], claimed[1].job.id);
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "3");
}

TEST_F(UniqueStoreTest, AKeyThatAnApplicationHoldsHoldsUpNobodyElse) {
  PGconn* pg = PQconnectdb(database_.url().c_str());
  PQclear(PQexec(pg, "begin"));
  PGresult* made = PQexec(pg, "select tenure.enqueue('q', 'k', unique_key => 'held')");
  ASSERT_EQ(PQresultStatus(made), PGRES_TUPLES_OK) << PQerrorMessage(pg);
  const std::string id = PQgetvalue(made, 0, 0);
  PQclear(made);
  EnqueueResult result = Enqueue({Job("a"), Job("held"), Job("b"), Job("c")});
  EXPECT_TRUE(result.jobs[0].status.ok());
  EXPECT_EQ(result.jobs[1].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(DetailsOf(result.jobs[1].status).reason, "KEY_BUSY");
  EXPECT_TRUE(result.jobs[2].status.ok());
  EXPECT_TRUE(result.jobs[3].status.ok());
  // A completion whose follow-up has the key is not reported as done, and the others are.
  const auto claimed = Claim();
  ASSERT_EQ(claimed.size(), 3u);
  const std::vector<CompleteItem> items{{claimed[0].token, std::nullopt, {{queue_, Job("held")}}},
                                        {claimed[1].token, std::nullopt, {{queue_, Job("d")}}}};
  auto settled = store_->Complete(queue_, items);
  ASSERT_TRUE(settled.ok()) << settled.status();
  EXPECT_EQ(settled->items[0].state, TokenState::kUnresolved);
  EXPECT_EQ(settled->items[1].state, TokenState::kWon);
  PQclear(PQexec(pg, "commit"));
  PQfinish(pg);
  EXPECT_EQ(EnqueueOne(Job("held")).id.ToString(), id);
  settled = store_->Complete(queue_, std::span(items).first(1));
  EXPECT_EQ(settled->items[0].state, TokenState::kWon);
  EXPECT_EQ(settled->items[0].follow_ups[0].ToString(), id);
}

// The row of the job that is to be changed is held: by a transaction that ends it, for example.
TEST_F(UniqueStoreTest, AHolderThatSomebodyHasLockedIsNotChanged) {
  const JobId id = EnqueueOne(Job("a")).id;
  PGconn* pg = PQconnectdb(database_.url().c_str());
  PQclear(PQexec(pg, "begin"));
  PQclear(PQexec(pg, absl::StrCat("select 1 from tenure.job where id = ", id.seq, " for update").c_str()));
  const EnqueueResult result = Enqueue({Job("a", OnConflict::kReplace, "2"), Job("b")});
  EXPECT_EQ(DetailsOf(result.jobs[0].status).reason, "KEY_BUSY");
  EXPECT_TRUE(result.jobs[1].status.ok());
  EXPECT_TRUE(EnqueueOne(Job("a")).existing) << "who does not change it need not wait";
  PQclear(PQexec(pg, "rollback"));
  PQfinish(pg);
  EXPECT_TRUE(EnqueueOne(Job("a", OnConflict::kReplace, "2")).existing);
  EXPECT_EQ(store_->Get(id)->payload.data, "2");
}

TEST_F(UniqueStoreTest, TheSqlFunctionKnowsAllPolicies) {
  const std::string first = Sql("select tenure.enqueue('q', 'k', '1', unique_key => 'a')");
  EXPECT_EQ(Sql("select tenure.enqueue('q', 'k', '2', unique_key => 'a')"), first);
  EXPECT_EQ(EnqueueOne(Job("a")).id.ToString(), first) << "one key for both ways in";
  EXPECT_NE(Sql("select tenure.enqueue('q', 'k', '2', unique_key => 'a', unique_by_kind => true)"), first);
  EXPECT_EQ(Sql("select tenure.enqueue('q', 'k', '3', headers => '{\"h\": \"v\"}', unique_key => 'a', on_conflict => "
                "'replace')"),
            first);
  const JobId id = *JobId::Parse(first, "id");
  EXPECT_EQ(store_->Get(id)->payload.data, "3");
  EXPECT_EQ(store_->Get(id)->headers.at("h"), "v");
  EXPECT_EQ(Sql("select tenure.enqueue('q', 'k', repeat('x', 3000), delay => '1 hour', unique_key => 'a', on_conflict "
                "=> 'replace_and_reschedule')"),
            first);
  EXPECT_EQ(store_->Get(id)->state, JobState::kScheduled);
  EXPECT_EQ(store_->Get(id)->payload.data.size(), 3000u);
  EXPECT_EQ(Count("ready"), "1") << "the one by kind";
  EXPECT_EQ(Sql("select tenure.enqueue('q', 'k', unique_key => 'a', on_conflict => 'reschedule')"), first);
  EXPECT_EQ(store_->Get(id)->state, JobState::kReady);
  EXPECT_EQ(Count("ready"), "2");
  EXPECT_EQ(Count("scheduled"), "0");
  EXPECT_EQ(Sql("do $$ begin perform tenure.enqueue('q', 'k', unique_key => 'a', on_conflict => 'reject'); "
                "raise 'accepted'; exception when unique_violation then null; end $$"),
            "");
  EXPECT_EQ(Sql("do $$ begin perform tenure.enqueue('q', 'k', unique_key => 'a', on_conflict => 'steal'); "
                "raise 'accepted'; exception when invalid_parameter_value then null; end $$"),
            "");
  for (const char* alone : {"on_conflict => 'reject'", "unique_by_kind => true", "unique_period => '1 hour'"}) {
    EXPECT_NE(SqlError(absl::StrCat("select tenure.enqueue('q', 'k', ", alone, ")")).find("unique_key: is required"),
              std::string::npos)
        << alone;
  }
  ASSERT_EQ(Claim().size(), 2u);
  EXPECT_EQ(Sql("select tenure.enqueue('q', 'k', unique_key => 'a', idempotency_key => 'i')"), first);
  EXPECT_NE(Sql("select tenure.enqueue('q', 'k', unique_key => 'a', on_conflict => 'replace')"), first) << "it runs";
  EXPECT_EQ(Sql("select tenure.enqueue('q', 'k', unique_key => 'a', idempotency_key => 'i')"), first) << "a repeat";
  const std::string held = Sql("select tenure.enqueue('q', 'k', unique_key => 'p', unique_period => '1 hour')");
  ASSERT_TRUE(store_->Cancel(queue_, std::vector<JobId>{*JobId::Parse(held, "id")}, "").ok());
  EXPECT_EQ(Sql("select tenure.enqueue('q', 'k', unique_key => 'p')"), held);
}

TEST_F(UniqueStoreTest, KeysThatNobodyHoldsAreForgotten) {
  NewJob period = Job("period");
  period.unique->period = absl::Hours(1);
  const EnqueueResult made = Enqueue({Job("ended1"), Job("ended2"), Job("live"), period});
  for (int i : {0, 1, 3}) {
    ASSERT_TRUE(store_->Cancel(queue_, std::vector<JobId>{made.jobs[static_cast<size_t>(i)].id}, "").ok());
  }
  const ShardFence fence = testing::HoldShards(*store_, "retention", granter_);
  std::optional<Store::UniqueCursor> cursor;
  int forgotten = 0, pages = 0;
  do {
    auto page = store_->PruneUnique(fence, &cursor, 2);
    ASSERT_TRUE(page.ok()) << page.status();
    forgotten += *page;
    ++pages;
  } while (cursor && pages < 10);
  EXPECT_EQ(forgotten, 2);
  EXPECT_GE(pages, 2);
  EXPECT_EQ(Sql("select string_agg(name, ' ' order by name) from tenure.unique_key"), "q:live q:period");
  ShardFence over = fence;
  ++over.term;
  Sql("update tenure.unique_key set held_until = 'epoch'");
  cursor.reset();
  EXPECT_EQ(*store_->PruneUnique(over, &cursor, 10), 0) << "the term is over";
  EXPECT_EQ(*store_->PruneUnique(fence, &cursor, 10), 1);
}

}  // namespace
}  // namespace tenure::store
