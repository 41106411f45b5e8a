// Admission in the store: who passes, what is counted, and that every way out of ready and leased frees its slots.
#include <libpq-fe.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/fair_choice.h"
#include "tests/support/store_fixture.h"

namespace tenure::store {
namespace {

using Strings = std::vector<std::string>;

class AdmissionStoreTest : public tenure::testing::StoreTest {
 protected:
  AdmissionStoreTest() {
    queue_ = store_->EnsureQueue("q", true)->id;
    granter_ = *store_->RegisterReplica("granter", "test");
    fence_ = **store_->AcquireLeader("promoter", granter_, absl::Hours(1));
  }

  static NewJob Job(Strings keys, std::string group = "", int16_t priority = 0) {
    NewJob job;
    job.kind = "k";
    job.payload = {"{}", "application/json"};
    job.concurrency_keys = std::move(keys);
    job.group = std::move(group);
    job.priority = priority;
    return job;
  }
  std::vector<JobId> Enqueue(const std::vector<NewJob>& jobs) {
    auto result = store_->Enqueue(queue_, jobs);
    EXPECT_TRUE(result.ok()) << result.status();
    std::vector<JobId> ids;
    for (const EnqueueOutcome& outcome : result->jobs) ids.push_back(outcome.id);
    return ids;
  }
  void Limit(const std::string& key, int max, LimitScope scope = LimitScope::kKey) {
    auto set = store_->SetLimit(queue_, scope, key, {max, std::nullopt});
    EXPECT_TRUE(set.ok()) << set.status();
  }
  AdmitResult Admit(const Strings& names) {
    auto result = store_->Admit(queue_, names, 1000, FairWindow::kLeast);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : AdmitResult();
  }
  std::vector<ClaimedJob> Claim(int jobs, absl::Duration lease = absl::Seconds(30)) {
    std::vector<ClaimedJob> all;
    for (int16_t priority : {int16_t{5}, int16_t{0}}) {
      ClaimBatch batch;
      batch.queue = queue_;
      batch.replica = granter_;
      batch.ranges = {{priority, kLowestKey, kHighestKey}};
      batch.workers = {"w"};
      batch.slots.assign(static_cast<size_t>(jobs) - all.size(), ClaimSlot{0, -1, lease});
      if (batch.slots.empty()) break;
      auto claimed = store_->Claim(batch);
      EXPECT_TRUE(claimed.ok()) << claimed.status();
      if (claimed.ok()) all.insert(all.end(), claimed->jobs.begin(), claimed->jobs.end());
    }
    return all;
  }
  static std::vector<int64_t> Seqs(const std::vector<ClaimedJob>& jobs) {
    std::vector<int64_t> seqs;
    for (const ClaimedJob& job : jobs) seqs.push_back(job.job.id.seq);
    std::sort(seqs.begin(), seqs.end());
    return seqs;
  }
  std::string States() {
    return Sql("select string_agg(state::text || '/' || coalesce(gate::text, '-'), ' ' order by id) from tenure.job");
  }
  GateNames Complete(const LeaseToken& token) {
    const std::vector<CompleteItem> items{{token, std::nullopt, {}}};
    auto result = store_->Complete(queue_, items);
    EXPECT_TRUE(result.ok() && result->items[0].state == TokenState::kWon) << result.status();
    return result.ok() ? result->freed : GateNames();
  }

  int32_t queue_ = 0;
  int32_t granter_ = 0;
  Fence fence_;
};

TEST_F(AdmissionStoreTest, AKeyAdmitsUpToItsLimitInOrder) {
  Limit("a", 2);
  const std::vector<NewJob> jobs{Job({"a"}), Job({"a"}), Job({"a"}, "", 5), Job({"a"}), Job({})};
  auto enqueued = store_->Enqueue(queue_, jobs);
  ASSERT_TRUE(enqueued.ok()) << enqueued.status();
  EXPECT_EQ(enqueued->jobs[0].state, JobState::kBlocked);
  EXPECT_EQ(enqueued->jobs[4].state, JobState::kReady) << "one without keys is ready at once";
  EXPECT_EQ(States(), "2/2 2/2 2/2 2/2 3/-");
  const AdmitResult first = Admit({"ka"});
  EXPECT_EQ(first.admitted, 2);
  EXPECT_TRUE(first.again.empty());
  EXPECT_EQ(States(), "3/0 2/2 3/0 2/2 3/-") << "the higher priority, then the oldest";
  EXPECT_EQ(Admit({"ka"}).admitted, 0);
  auto claimed = Claim(10);
  ASSERT_EQ(claimed.size(), 3u);
  EXPECT_EQ(Admit({"ka"}).admitted, 0) << "leased ones hold their slots";
  const auto keyed = std::find_if(claimed.begin(), claimed.end(),
                                  [&](const ClaimedJob& job) { return job.job.id == enqueued->jobs[0].id; });
  EXPECT_EQ(Complete(keyed->token), (GateNames{"ka"}));
  EXPECT_EQ(Admit({"ka"}).admitted, 1);
}

// What is admitted later stands behind what was admitted before, whatever its id: a claim finds it beyond its cursor.
TEST_F(AdmissionStoreTest, WhatIsAdmittedTogetherStandsTogetherBehindAllBefore) {
  Limit("a", 1);
  const auto ids = Enqueue({Job({"a"}), Job({"a"}), Job({"b"}), Job({"b"})});
  const AdmitResult first = Admit({"ka", "kb"});
  ASSERT_EQ(first.ready.size(), 1u);
  EXPECT_EQ(first.ready[0].count, 3);
  EXPECT_EQ(first.ready[0].low.rank, first.ready[0].high.rank);
  for (const ClaimedJob& job : Claim(10)) {
    if (job.job.id == ids[0]) Complete(job.token);
  }
  const AdmitResult second = Admit({"ka"});
  ASSERT_EQ(second.ready.size(), 1u);
  EXPECT_GT(second.ready[0].low.rank, first.ready[0].high.rank);
  EXPECT_EQ(second.ready[0].low.id, ids[1].seq);
}

TEST_F(AdmissionStoreTest, TheLongestPrefixCountsUnlessTheKeyHasALimitOfItsOwn) {
  Limit("user:", 2, LimitScope::kPrefix);
  Limit("user:vip:", 3, LimitScope::kPrefix);
  Limit("user:vip:1", 1);
  std::vector<NewJob> jobs;
  for (const char* key : {"user:1", "user:2", "user:vip:1", "user:vip:2", "other"}) {
    for (int i = 0; i < 5; ++i) jobs.push_back(Job({key}));
  }
  Enqueue(jobs);
  Admit({"kuser:1", "kuser:2", "kuser:vip:1", "kuser:vip:2", "kother"});
  EXPECT_EQ(
      Sql("select string_agg(k || '=' || n, ' ' order by k) from (select concurrency_keys[1] as k, count(*) filter "
          "(where state = 3) as n from tenure.job group by 1) t"),
      "other=5 user:1=2 user:2=2 user:vip:1=1 user:vip:2=3");
}

TEST_F(AdmissionStoreTest, RaisingALimitAdmitsAndLoweringItTakesNothing) {
  Limit("a", 3);
  Enqueue(std::vector<NewJob>(6, Job({"a"})));
  EXPECT_EQ(Admit({"ka"}).admitted, 3);
  Limit("a", 1);
  EXPECT_EQ(Admit({"ka"}).admitted, 0);
  auto claimed = Claim(10);
  ASSERT_EQ(claimed.size(), 3u) << "what was admitted stays";
  Complete(claimed[0].token);
  Complete(claimed[1].token);
  EXPECT_EQ(Admit({"ka"}).admitted, 0) << "one still holds the only slot";
  Complete(claimed[2].token);
  EXPECT_EQ(Admit({"ka"}).admitted, 1);
  Limit("a", 3);
  EXPECT_EQ(Admit({"ka"}).admitted, 2);
  auto found = store_->FindLimit(queue_, LimitScope::kKey, "a");
  ASSERT_TRUE(found.ok() && found->usage) << found.status();
  EXPECT_EQ(found->usage->held, 3);
  EXPECT_EQ(found->usage->waiting, 0);
  EXPECT_TRUE(store_->DeleteLimit(queue_, LimitScope::kKey, "a").ok());
  EXPECT_EQ(DetailsOf(store_->DeleteLimit(queue_, LimitScope::kKey, "a")).reason, "LIMIT_NOT_FOUND");
}

TEST_F(AdmissionStoreTest, KeysAreTakenInOneOrderAndHeldWhileWaiting) {
  Limit("a", 1);
  Limit("b", 1);
  const auto ids = Enqueue({Job({"b"}), Job({"a", "b"}), Job({"a"}), Job({"b"})});
  EXPECT_EQ(Admit({"ka", "kb"}).admitted, 1);
  EXPECT_EQ(States(), "3/0 2/3 2/2 2/2") << "the second holds a and waits for b";
  auto claimed = Claim(10);
  ASSERT_EQ(Seqs(claimed), std::vector<int64_t>{ids[0].seq});
  Complete(claimed[0].token);
  EXPECT_EQ(Admit({"kb"}).admitted, 1) << "its turn came before that of the last";
  claimed = Claim(10);
  ASSERT_EQ(Seqs(claimed), std::vector<int64_t>{ids[1].seq});
  EXPECT_EQ(Complete(claimed[0].token), (GateNames{"ka", "kb"}));
  EXPECT_EQ(Admit({"ka", "kb"}).admitted, 2);
}

// Each way in which a job leaves ready or leased for good, or for a time.
TEST_F(AdmissionStoreTest, EveryWayOutFreesTheSlot) {
  Limit("a", 1);
  const Fence lifecycle = **store_->AcquireLeader("lifecycle", granter_, absl::Hours(1));
  using Way = std::function<GateNames(const JobId&, const LeaseToken&)>;
  auto fail = [&](const LeaseToken& token, bool final, absl::Duration after) {
    const std::vector<FailItem> items{{token, {"boom"}, final, after, std::nullopt, ""}};
    return store_->Fail(queue_, items)->freed;
  };
  const std::map<std::string, Way> ways{
      {"complete", [&](const JobId&, const LeaseToken& token) { return Complete(token); }},
      {"tenure.complete",
       [&](const JobId&, const LeaseToken& token) {
         const std::string start = store_->ReadStart()->snapshot;
         Sql(absl::StrCat("select tenure.complete('", token.ToString(), "')"));
         return store_->ReadEvents(start)->admit[queue_];
       }},
      {"fail for good", [&](const JobId&, const LeaseToken& token) { return fail(token, true, absl::Seconds(1)); }},
      {"fail", [&](const JobId&, const LeaseToken& token) { return fail(token, false, absl::Hours(1)); }},
      {"snooze",
       [&](const JobId&, const LeaseToken& token) {
         const std::vector<GiveBackItem> items{{token, absl::Hours(1)}};
         return store_->GiveBack(queue_, Verb::kSnooze, items)->freed;
       }},
      {"release later",
       [&](const JobId&, const LeaseToken& token) {
         const std::vector<GiveBackItem> items{{token, absl::Hours(1)}};
         return store_->GiveBack(queue_, Verb::kRelease, items)->freed;
       }},
      {"cancel",
       [&](const JobId& id, const LeaseToken&) {
         const std::vector<JobId> ids{id};
         return store_->Cancel(queue_, ids, "")->freed;
       }},
      {"cancel while ready",
       [&](const JobId& id, const LeaseToken& token) {
         const std::vector<GiveBackItem> items{{token, absl::ZeroDuration()}};
         EXPECT_TRUE(store_->GiveBack(queue_, Verb::kRelease, items)->freed.empty()) << "it keeps its slot";
         EXPECT_EQ(Admit({"ka"}).admitted, 0);
         const std::vector<JobId> ids{id};
         return store_->Cancel(queue_, ids, "")->freed;
       }},
      {"expire while ready",
       [&](const JobId& id, const LeaseToken& token) {
         const std::vector<GiveBackItem> items{{token, absl::ZeroDuration()}};
         EXPECT_TRUE(store_->GiveBack(queue_, Verb::kRelease, items).ok());
         Sql(absl::StrCat("update tenure.job set expires_at = now() - interval '1 s' where id = ", id.seq));
         GatesByQueue freed;
         EXPECT_EQ(*store_->ExpireJobs(lifecycle, 10, &freed), 1);
         return freed[queue_];
       }},
      {"the crash budget is spent",
       [&](const JobId& id, const LeaseToken& token) {
         Sql(absl::StrCat("update tenure.job set lease_until = now() - interval '1 s', crash_budget = 1 where id = ",
                          id.seq));
         const std::vector<LeaseRef> refs{{queue_, id.seq, token.number}};
         std::vector<ReadyRange> ready;
         auto reaped = store_->Reap(queue_, refs, &ready);
         return (*reaped)[0].freed;
       }},
  };
  for (const auto& [name, way] : ways) {
    SCOPED_TRACE(name);
    Sql("truncate tenure.job");
    const auto ids = Enqueue({Job({"a"}), Job({"a"})});
    ASSERT_EQ(Admit({"ka"}).admitted, 1);
    const auto claimed = Claim(2);
    ASSERT_EQ(Seqs(claimed), std::vector<int64_t>{ids[0].seq});
    ASSERT_EQ(Admit({"ka"}).admitted, 0);
    const GateNames freed = way(ids[0], claimed[0].token);
    EXPECT_NE(std::find(freed.begin(), freed.end(), "ka"), freed.end()) << "it is told";
    EXPECT_EQ(Admit({"ka"}).admitted, 1);
  }
}

TEST_F(AdmissionStoreTest, ALeaseThatRanOutOrWasReleasedKeepsItsSlot) {
  Limit("a", 1);
  Enqueue({Job({"a"}), Job({"a"})});
  ASSERT_EQ(Admit({"ka"}).admitted, 1);
  auto claimed = Claim(1);
  Sql("update tenure.job set lease_until = now() - interval '1 s' where state = 4");
  const std::vector<LeaseRef> refs{{queue_, claimed[0].job.id.seq, claimed[0].token.number}};
  std::vector<ReadyRange> ready;
  ASSERT_FALSE((*store_->Reap(queue_, refs, &ready))[0].discarded);
  EXPECT_EQ(States(), "3/0 2/2");
  EXPECT_EQ(Admit({"ka"}).admitted, 0);
  claimed = Claim(1);
  ASSERT_EQ(claimed.size(), 1u);
  const std::vector<GiveBackItem> items{{claimed[0].token, absl::ZeroDuration()}};
  ASSERT_TRUE(store_->GiveBack(queue_, Verb::kRelease, items).ok());
  EXPECT_EQ(States(), "3/0 2/2");
  EXPECT_EQ(Admit({"ka"}).admitted, 0);
}

TEST_F(AdmissionStoreTest, WhatWasScheduledPassesItsGatesWhenItIsDue) {
  Limit("a", 1);
  NewJob later = Job({"a"});
  later.delay = absl::Milliseconds(1);
  Enqueue({later, later});
  EXPECT_EQ(States(), "1/- 1/-");
  Sql("update tenure.job set due_at = now() - interval '1 s'");
  auto promoted = store_->Promote(fence_, absl::InfinitePast(), 10);
  ASSERT_TRUE(promoted.ok()) << promoted.status();
  EXPECT_EQ(promoted->promoted, 2);
  EXPECT_TRUE(promoted->ready.empty());
  EXPECT_EQ(States(), "2/2 2/2");
  EXPECT_EQ(Admit(promoted->blocked[queue_]).admitted, 1);
  // A failure that is to be tried at once goes to the end of no line, but through its gates.
  auto claimed = Claim(1);
  const std::vector<FailItem> items{{claimed[0].token, {"boom"}, false, absl::ZeroDuration(), std::nullopt, ""}};
  auto failed = store_->Fail(queue_, items);
  EXPECT_EQ(failed->items[0].job_state, JobState::kBlocked);
  EXPECT_EQ(failed->freed, (GateNames{"ka"}));
  EXPECT_EQ(States(), "2/2 2/2");
  EXPECT_EQ(
      Sql("select sum(blocked) || ' ' || sum(ready) || ' ' || sum(leased) || ' ' || sum(scheduled) from tenure.event"),
      "2 0 0 0");
}

TEST_F(AdmissionStoreTest, AGroupRunsOneAfterTheOther) {
  const auto ids = Enqueue({Job({}, "g"), Job({}, "g", 5), Job({}, "h"), Job({}, "g")});
  EXPECT_EQ(States(), "2/1 2/1 2/1 2/1");
  EXPECT_EQ(Admit({"gg", "gh"}).admitted, 2);
  auto claimed = Claim(10);
  ASSERT_EQ(Seqs(claimed), (std::vector<int64_t>{ids[0].seq, ids[2].seq}));
  EXPECT_EQ(Admit({"gg", "gh"}).admitted, 0);
  auto of = [&](const JobId& id) {
    return std::find_if(claimed.begin(), claimed.end(), [&](const ClaimedJob& job) { return job.job.id == id; })->token;
  };
  // A retrying head holds its group ...
  const std::vector<FailItem> items{{of(ids[0]), {"boom"}, false, absl::Hours(1), std::nullopt, ""}};
  EXPECT_EQ(store_->Fail(queue_, items)->freed, (GateNames{"gg"}));
  EXPECT_EQ(Admit({"gg"}).admitted, 0);
  // ... unless the queue says otherwise.
  QueueSettings settings;
  settings.skip_retrying = true;
  EXPECT_TRUE(store_->UpdateQueue("q", settings, {"groups_skip_retrying"}).ok());
  EXPECT_EQ(Admit({"gg"}).admitted, 1);
  EXPECT_EQ(States(), "1/- 3/0 4/0 2/1") << "the next, whatever its priority";
  // When the first is due again it waits for the one that runs, and then comes first.
  Sql("update tenure.job set due_at = now() - interval '1 s' where state = 1");
  EXPECT_EQ(store_->Promote(fence_, absl::InfinitePast(), 10)->blocked[queue_], (GateNames{"gg", "q"}));
  EXPECT_EQ(Admit({"gg"}).admitted, 0);
  claimed = Claim(10);
  EXPECT_EQ(Complete(claimed[0].token), (GateNames{"gg"}));
  EXPECT_EQ(Admit({"gg"}).admitted, 1);
  EXPECT_EQ(States(), "3/0 4/0 2/1");
}

TEST_F(AdmissionStoreTest, AGroupsHeadWaitsForItsKeysAndHoldsTheGroup) {
  Limit("a", 1);
  Enqueue({Job({"a"}), Job({"a"}, "g"), Job({}, "g")});
  EXPECT_EQ(Admit({"ka", "gg"}).admitted, 1);
  EXPECT_EQ(States(), "3/0 2/2 2/1");
  const auto claimed = Claim(10);
  Complete(claimed[0].token);
  EXPECT_EQ(Admit({"ka"}).admitted, 1);
  EXPECT_EQ(States(), "3/0 2/1");
}

TEST_F(AdmissionStoreTest, AQueueAdmitsUpToItsOwnLimit) {
  Enqueue({Job({}), Job({})});
  EXPECT_EQ(States(), "3/- 3/-");
  Limit("", 3, LimitScope::kQueue);
  Limit("a", 1);
  Enqueue({Job({}), Job({"a"}), Job({"a"}), Job({}, "", 5)});
  EXPECT_EQ(States(), "3/- 3/- 2/6 2/2 2/2 2/6") << "what was ready stays so, and counts";
  EXPECT_EQ(Admit({"ka", "q"}).admitted, 1);
  EXPECT_EQ(States(), "3/- 3/- 2/6 2/6 2/2 3/0") << "the first of a holds its key, and waits for the queue";
  const auto claimed = Claim(10);
  ASSERT_EQ(claimed.size(), 3u);
  Complete(claimed[0].token);
  Complete(claimed[1].token);
  EXPECT_EQ(Admit({"q"}).admitted, 2);
  EXPECT_TRUE(store_->DeleteLimit(queue_, LimitScope::kQueue, "").ok());
  Enqueue({Job({})});
  EXPECT_EQ(Sql("select state from tenure.job order by id desc limit 1"), "3");
}

TEST_F(AdmissionStoreTest, ARateLetsItsBurstPassAndThenOnePerInterval) {
  ASSERT_TRUE(store_->SetLimit(queue_, LimitScope::kKey, "a", {std::nullopt, Rate{absl::Hours(1), 3}}).ok());
  Enqueue(std::vector<NewJob>(6, Job({"a"})));
  AdmitResult result = Admit({"ka"});
  EXPECT_EQ(result.admitted, 3);
  ASSERT_EQ(result.later.size(), 1u);
  EXPECT_EQ(result.later[0].name, "ka");
  EXPECT_GT(result.later[0].after, absl::Minutes(59));
  EXPECT_LE(result.later[0].after, absl::Hours(1));
  for (const ClaimedJob& job : Claim(10)) Complete(job.token);
  EXPECT_EQ(Admit({"ka"}).admitted, 0) << "a rate counts starts, not what runs";
  // An hour later, for the database.
  Sql("update tenure.admission_pace set next_at = next_at - interval '1 h'");
  EXPECT_EQ(Admit({"ka"}).admitted, 1);
  const auto usage = store_->FindLimit(queue_, LimitScope::kKey, "a")->usage;
  ASSERT_TRUE(usage && usage->next_start_in);
  EXPECT_EQ(usage->waiting, 2);
  EXPECT_GT(*usage->next_start_in, absl::Minutes(59));
}

TEST_F(AdmissionStoreTest, AQueueHasARateToo) {
  ASSERT_TRUE(store_->SetLimit(queue_, LimitScope::kQueue, "", {std::nullopt, Rate{absl::Hours(1), 2}}).ok());
  Enqueue(std::vector<NewJob>(3, Job({})));
  const AdmitResult result = Admit({"q"});
  EXPECT_EQ(result.admitted, 2);
  ASSERT_EQ(result.later.size(), 1u);
  EXPECT_EQ(result.later[0].name, "q");
}

TEST_F(AdmissionStoreTest, AFailureCanPauseItsKeys) {
  Enqueue({Job({"a", "b"})});
  EXPECT_EQ(Admit({"ka"}).admitted, 1);
  const auto claimed = Claim(10);
  ASSERT_EQ(claimed.size(), 1u);
  Enqueue({Job({"a"})});
  EXPECT_EQ(Admit({"ka"}).admitted, 1);
  const auto other = Claim(10);
  ASSERT_EQ(other.size(), 1u);
  Enqueue({Job({"b"}), Job({"c"})});
  const std::vector<FailItem> items{{claimed[0].token, {"429"}, false, absl::Hours(1), absl::Minutes(5), ""}};
  ASSERT_TRUE(store_->Fail(queue_, items).ok());
  // A shorter one shortens nothing.
  const std::vector<FailItem> shorter{{other[0].token, {"429"}, false, absl::Hours(1), absl::Seconds(1), ""}};
  ASSERT_TRUE(store_->Fail(queue_, shorter).ok());
  EXPECT_EQ(Sql("select count(*) from tenure.admission_pace where paused_until > now() + interval '4 minutes'"), "2");
  AdmitResult result = Admit({"kb", "kc"});
  EXPECT_EQ(result.admitted, 1) << "c is none of its keys";
  ASSERT_EQ(result.later.size(), 1u);
  EXPECT_EQ(result.later[0].name, "kb");
  EXPECT_GT(result.later[0].after, absl::Minutes(4));
  EXPECT_EQ(Sql("select count(*) from tenure.admission_pace where paused_until > now()"), "2");
  Sql("update tenure.admission_pace set paused_until = now()");
  EXPECT_EQ(Admit({"kb"}).admitted, 1);
}

TEST_F(AdmissionStoreTest, AnApplicationEnqueuesBlockedJobsAndSaysSo) {
  Limit("a", 1);
  const std::string start = store_->ReadStart()->snapshot;
  Sql("select tenure.enqueue('q', 'k', '{}', concurrency_keys => '{b,a,b}', group_key => 'g')");
  EXPECT_EQ(Sql("select concurrency_keys || group_key from tenure.job"), "{a,b,g}");
  EXPECT_EQ(States(), "2/1");
  auto events = store_->ReadEvents(start);
  ASSERT_TRUE(events.ok()) << events.status();
  EXPECT_EQ(events->admit[queue_], (GateNames{"ka", "kb", "gg", "q"}));
  EXPECT_EQ(events->deltas[queue_].blocked, 1);
  EXPECT_TRUE(events->ready.empty());
  EXPECT_EQ(Admit(events->admit[queue_]).admitted, 1);
}

TEST_F(AdmissionStoreTest, KeysAreKeptWithTheJobAndItsRetry) {
  NewJob job = Job({"a", "odd \"key\" {,\\}"}, "g");
  job.idempotency_key = "once";
  const std::vector<NewJob> jobs{job};
  const auto outcome = store_->EnqueueKeyed(queue_, jobs);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->jobs[0].state, JobState::kBlocked);
  EXPECT_TRUE(store_->EnqueueKeyed(queue_, jobs)->jobs[0].duplicate);
  std::vector<NewJob> other{job};
  other[0].concurrency_keys = {"a"};
  EXPECT_EQ(DetailsOf(store_->EnqueueKeyed(queue_, other)->jobs[0].status).reason, "IDEMPOTENCY_CONFLICT");
  const JobId id = outcome->jobs[0].id;
  EXPECT_EQ(store_->Get(id)->concurrency_keys, job.concurrency_keys);
  const std::vector<JobId> ids{id};
  ASSERT_TRUE(store_->Cancel(queue_, ids, "").ok());
  EXPECT_EQ(store_->Get(id)->concurrency_keys, job.concurrency_keys);
  auto again = store_->Retry(id, "r");
  ASSERT_TRUE(again.ok() && again->status.ok()) << again.status();
  EXPECT_EQ(again->blocked, (GateNames{"ka", "kodd \"key\" {,\\}", "gg", "q"}));
  EXPECT_EQ(store_->Get(again->id)->group, "g");
}

TEST_F(AdmissionStoreTest, TheSweepFindsWhatWaits) {
  Limit("a", 0);
  Limit("", 0, LimitScope::kQueue);
  Enqueue({Job({"a"}), Job({"a"}), Job({"c"}, "g"), Job({}, "h"), Job({"b", "c"}), Job({})});
  Admit({"gg", "gh", "kb", "kc"});
  Strings names;
  BlockedPage::Cursor at;
  for (int pages = 0; pages < 50; ++pages) {
    auto page = store_->BlockedNames(at, 2);
    ASSERT_TRUE(page.ok()) << page.status();
    names.insert(names.end(), page->names[queue_].begin(), page->names[queue_].end());
    if (!page->next) break;
    at = *page->next;
  }
  // The heads of both groups have passed theirs, and all but the first two wait for the queue.
  EXPECT_EQ(names, (Strings{"ka", "q"}));
}

TEST_F(AdmissionStoreTest, AQueueThatAnApplicationIsMakingHoldsUpNobody) {
  PGconn* pg = PQconnectdb(database_.direct_url().c_str());
  PQclear(PQexec(pg, "begin"));
  PQclear(PQexec(pg, "select tenure.enqueue('fresh', 'k')"));
  const absl::Time began = absl::Now();
  for (const auto& made : {store_->EnsureQueue("fresh", true), store_->CreateQueue("fresh", {}, false)}) {
    EXPECT_EQ(made.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(DetailsOf(made.status()).reason, "QUEUE_BUSY");
  }
  EXPECT_LT(absl::Now() - began, absl::Seconds(3)) << "a tenth of a second each";
  EXPECT_TRUE(store_->EnsureQueue("another", true).ok());
  PQclear(PQexec(pg, "commit"));
  PQfinish(pg);
  EXPECT_TRUE(store_->EnsureQueue("fresh", true).ok());
}

// Locked rows are passed over, and looked at again.
TEST_F(AdmissionStoreTest, ARowThatSomebodyHoldsIsLookedAtAgain) {
  const auto ids = Enqueue({Job({"a"}), Job({"a"})});
  PGconn* pg = PQconnectdb(database_.url().c_str());
  PQclear(PQexec(pg, "begin"));
  PQclear(PQexec(pg, absl::StrCat("select 1 from tenure.job where id = ", ids[0].seq, " for update").c_str()));
  const AdmitResult result = Admit({"ka"});
  EXPECT_EQ(result.admitted, 1);
  ASSERT_FALSE(result.later.empty());
  EXPECT_EQ(result.later[0].name, "ka");
  // Not only closed: what then ends its transaction is nobody's to wait for.
  PQclear(PQexec(pg, "rollback"));
  PQfinish(pg);
  EXPECT_EQ(Admit({"ka"}).admitted, 1);
}

}  // namespace
}  // namespace tenure::store
