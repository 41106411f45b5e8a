// Targets and the outbox on a real PostgreSQL, statement by statement: which ends of jobs are told, in which order they
// are taken, and what a leader whose term is over can no longer do. Layer: tests.
#include <libpq-fe.h>

#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/status.h"
#include "tests/support/store_fixture.h"

namespace tenure::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

std::string ReasonOf(const absl::Status& status) { return DetailsOf(status).reason; }

// A session of an application, for transactions that stay open.
class Session {
 public:
  explicit Session(const std::string& url) : pg_(PQconnectdb(url.c_str()), &PQfinish) {}
  void Run(const std::string& sql) {
    const std::unique_ptr<PGresult, decltype(&PQclear)> result(PQexec(pg_.get(), sql.c_str()), &PQclear);
    const ExecStatusType status = PQresultStatus(result.get());
    EXPECT_TRUE(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) << sql << PQerrorMessage(pg_.get());
  }

 private:
  std::unique_ptr<PGconn, decltype(&PQfinish)> pg_;
};

class TargetStoreTest : public testing::StoreTest {
 protected:
  TargetStoreTest() : queue_(store_->EnsureQueue("q", true)->id), replica_(*store_->RegisterReplica("r", "test")) {
    fence_ = Lead("notify");
  }

  Fence Lead(const char* worker) {
    const auto fence = store_->AcquireLeader(worker, replica_, absl::Minutes(5));
    EXPECT_TRUE(fence.ok() && fence->has_value()) << fence.status();
    return fence.ok() && *fence ? **fence : Fence();
  }

  static TargetSettings Webhook(std::vector<std::string> queues = {}, int16_t events = kAllEvents) {
    TargetSettings settings;
    settings.url = "https://example.com/hook";
    settings.secret = "a-secret-of-sixteen";
    settings.queues = std::move(queues);
    settings.events = events;
    return settings;
  }
  int64_t Make(const std::string& name, const TargetSettings& settings = Webhook()) {
    std::vector<int32_t> ids;
    for (const std::string& queue : settings.queues) ids.push_back(store_->EnsureQueue(queue, true)->id);
    const auto made = store_->CreateTarget(name, settings, ids, false);
    EXPECT_EQ(made.status(), absl::OkStatus());
    return made.ok() ? made->id : 0;
  }

  std::vector<ClaimedJob> Claim(int32_t queue, int count, absl::Duration lease = absl::Minutes(5)) {
    std::vector<NewJob> specs(static_cast<size_t>(count), NewJob{.kind = "k", .payload = {"{}", ""}});
    EXPECT_TRUE(store_->Enqueue(queue, specs).ok());
    ClaimBatch batch;
    batch.queue = queue;
    batch.replica = replica_;
    batch.ranges = {{0, kLowestKey, kHighestKey}};
    batch.workers = {"w"};
    batch.slots.assign(static_cast<size_t>(count), ClaimSlot{0, -1, lease});
    auto claimed = store_->Claim(batch);
    EXPECT_TRUE(claimed.ok()) << claimed.status();
    return claimed.ok() ? std::move(claimed->jobs) : std::vector<ClaimedJob>();
  }
  // Completes `count` jobs in one statement; their event ids.
  std::vector<std::string> Complete(int32_t queue, int count) {
    std::vector<CompleteItem> items;
    std::vector<std::string> ids;
    for (const ClaimedJob& job : Claim(queue, count)) {
      items.push_back({job.token, Payload{"ok", "text/plain"}, {}});
      ids.push_back(job.job.id.ToString() + ".completed");
    }
    EXPECT_TRUE(store_->Complete(queue, items).ok());
    return ids;
  }
  EventPage Take(int64_t target, int limit = 1000, bool planned = false) {
    auto page = store_->TakePage(fence_, target, limit, planned);
    EXPECT_EQ(page.status(), absl::OkStatus());
    return page.value_or(EventPage());
  }
  absl::Status Finish(int64_t target, const EventPage& page, const std::vector<Refused>& refused = {}) {
    return store_->FinishPage(fence_, target, page, page.events.size(), refused, "");
  }
  // Everything that is there for a target now.
  std::vector<std::string> TakeAll(int64_t target, int limit = 1000) {
    std::vector<std::string> ids;
    while (true) {
      const EventPage page = Take(target, limit);
      for (const JobEvent& event : page.events) ids.push_back(event.Id());
      EXPECT_EQ(Finish(target, page), absl::OkStatus());
      if (!page.more) return ids;
    }
  }
  bool Fresh(int64_t target) {
    const auto loaded = store_->LoadTargets(TargetPurpose::kNotify);
    EXPECT_EQ(loaded.status(), absl::OkStatus());
    for (const TargetWork& work : *loaded) {
      if (work.target.id == target) return work.fresh;
    }
    ADD_FAILURE() << "no such target";
    return false;
  }

  const int32_t queue_;
  const int32_t replica_;
  Fence fence_;
};

TEST_F(TargetStoreTest, ATargetIsKeptAsItWasMadeAndItsSecretIsForTheWorkerAlone) {
  TargetSettings settings = Webhook({"q", "other"}, EventBit(JobState::kDiscarded));
  settings.description = "pager";
  settings.interval = absl::Seconds(3);
  const int64_t id = Make("t", settings);
  const auto target = store_->GetTarget("t");
  ASSERT_EQ(target.status(), absl::OkStatus());
  EXPECT_EQ(target->id, id);
  EXPECT_EQ(target->settings.purpose, TargetPurpose::kNotify);
  EXPECT_EQ(target->settings.url, "https://example.com/hook");
  EXPECT_THAT(target->settings.queues, ElementsAre("other", "q"));
  EXPECT_EQ(target->settings.events, EventBit(JobState::kDiscarded));
  EXPECT_EQ(target->settings.interval, absl::Seconds(3));
  EXPECT_EQ(target->settings.description, "pager");
  EXPECT_EQ(target->settings.secret, "");
  EXPECT_TRUE(target->has_secret);
  EXPECT_EQ((*store_->LoadTargets(TargetPurpose::kNotify))[0].target.settings.secret, "a-secret-of-sixteen");
  EXPECT_THAT(*store_->LoadTargets(TargetPurpose::kExport), IsEmpty());

  EXPECT_EQ(ReasonOf(store_->CreateTarget("t", settings, {}, false).status()), "TARGET_EXISTS");
  EXPECT_EQ(ReasonOf(store_->GetTarget("u").status()), "TARGET_NOT_FOUND");
  EXPECT_EQ(ReasonOf(store_->DeleteTarget("u")), "TARGET_NOT_FOUND");
  EXPECT_EQ(ReasonOf(store_->SetTargetPaused("u", true).status()), "TARGET_NOT_FOUND");
  EXPECT_EQ(ReasonOf(store_->ListDeadDeliveries("u", 0, 10).status()), "TARGET_NOT_FOUND");
  EXPECT_EQ(ReasonOf(store_->RedriveDeliveries("u", {}).status()), "TARGET_NOT_FOUND");

  EXPECT_TRUE(store_->SetTargetPaused("t", true)->paused);
  EXPECT_THAT(*store_->LoadTargets(TargetPurpose::kNotify), IsEmpty()) << "paused";
  EXPECT_FALSE(store_->SetTargetPaused("t", false)->paused);
  Make("a");
  const auto list = store_->ListTargets("", "", 10);
  ASSERT_EQ(list.status(), absl::OkStatus());
  ASSERT_THAT(*list, SizeIs(2));
  EXPECT_EQ((*list)[0].name, "a");
  EXPECT_THAT(*store_->ListTargets("a", "", 10), SizeIs(1));
  EXPECT_THAT(*store_->ListTargets("", "b", 10), IsEmpty());
}

TEST_F(TargetStoreTest, AnUpdateChangesWhatItNamesAndMayBeRefused) {
  Make("t", Webhook({"q"}));
  TargetSettings change;
  change.description = "new";
  change.events = EventBit(JobState::kExpired);
  const auto fine = [](const TargetSettings&) { return absl::OkStatus(); };
  const auto changed = store_->UpdateTarget("t", change, {}, {"description", "events"}, fine);
  ASSERT_EQ(changed.status(), absl::OkStatus());
  EXPECT_EQ(changed->settings.description, "new");
  EXPECT_EQ(changed->settings.url, "https://example.com/hook");
  EXPECT_THAT(changed->settings.queues, ElementsAre("q"));
  EXPECT_EQ(changed->version, 2);
  EXPECT_TRUE(changed->has_secret);
  EXPECT_EQ(Sql("select events from tenure.outbox_interest"), "8");
  const auto refused = store_->UpdateTarget("t", change, {}, {"url"}, [](const TargetSettings& merged) {
    EXPECT_EQ(merged.url, "");
    EXPECT_EQ(merged.description, "new") << "the whole of what would be";
    return InvalidField("url", "is required");
  });
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->GetTarget("t")->settings.url, "https://example.com/hook");
}

TEST_F(TargetStoreTest, AChangeByTheOwnerOutweighsTheWorkersNextRun) {
  TargetSettings settings;
  settings.purpose = TargetPurpose::kInventory;
  settings.url = "file:///somewhere";
  settings.queues = {"q"};
  settings.cron = "0 6 * * *";
  settings.time_zone = "Europe/Berlin";
  const int64_t target = Make("t", settings);
  const Fence fence = Lead("inventory");
  const auto load = [&] { return store_->LoadTargets(TargetPurpose::kInventory)->at(0); };
  const TargetWork work = load();
  ASSERT_TRUE(work.next_run.has_value());
  EXPECT_GT(*work.next_run, work.now);
  EXPECT_LE(*work.next_run, work.now + absl::Hours(25));
  EXPECT_EQ(Sql("select (next_at at time zone 'Europe/Berlin')::time from tenure.target_state"), "06:00:00");
  const absl::Time next = work.now + absl::Hours(100);
  ASSERT_EQ(store_->NoteTarget(fence, target, "", NextRun{next, work.target.version}), absl::OkStatus());
  EXPECT_LT(absl::AbsDuration(*load().next_run - next), absl::Microseconds(1));
  TargetSettings change;
  change.cron = "0 7 * * *";
  ASSERT_TRUE(
      store_->UpdateTarget("t", change, {}, {"cron"}, [](const TargetSettings&) { return absl::OkStatus(); }).ok());
  EXPECT_EQ(Sql("select (next_at at time zone 'Europe/Berlin')::time from tenure.target_state"), "07:00:00");
  ASSERT_EQ(store_->NoteTarget(fence, target, "", NextRun{next, work.target.version}), absl::OkStatus());
  EXPECT_EQ(Sql("select (next_at at time zone 'Europe/Berlin')::time from tenure.target_state"), "07:00:00")
      << "what was planned for the old schedule is not written";
}

TEST_F(TargetStoreTest, WhoListensIsDerivedFromAllTargets) {
  const std::string all =
      "select string_agg(queue_id || ':' || events, ' ' order by queue_id) from tenure.outbox_interest";
  Make("a", Webhook({"q"}, 1));
  EXPECT_EQ(Sql(all), absl::StrCat(queue_, ":1"));
  Make("b", Webhook({"q"}, 2));
  EXPECT_EQ(Sql(all), absl::StrCat(queue_, ":3"));
  Make("c", Webhook({}, 8));
  EXPECT_EQ(Sql(all), absl::StrCat("0:8 ", queue_, ":3"));
  ASSERT_EQ(store_->DeleteTarget("b"), absl::OkStatus());
  EXPECT_EQ(Sql(all), absl::StrCat("0:8 ", queue_, ":1"));
  ASSERT_EQ(store_->DeleteTarget("a"), absl::OkStatus());
  ASSERT_EQ(store_->DeleteTarget("c"), absl::OkStatus());
  EXPECT_EQ(Sql(all), "");
  EXPECT_EQ(Sql("select count(*) from tenure.target_state"), "0");
}

TEST_F(TargetStoreTest, ThereIsABoundOfTargets) {
  Sql(absl::StrCat(
      "insert into tenure.target (name, purpose, url) select 'x' || n, 1, 'https://x' from generate_series(1, ",
      kMaxTargets, ") n"));
  EXPECT_EQ(ReasonOf(store_->CreateTarget("t", Webhook(), {}, false).status()), "TOO_MANY_TARGETS");
}

TEST_F(TargetStoreTest, EveryWayInWhichAJobEndsIsTold) {
  const int64_t target = Make("t");
  std::vector<std::string> expected;
  const auto jobs = Claim(queue_, 4);
  auto id = [](const ClaimedJob& job, const char* outcome) { return job.job.id.ToString() + "." + outcome; };
  ASSERT_TRUE(store_->Complete(queue_, std::vector<CompleteItem>{{jobs[0].token, Payload{"ok", ""}, {}}}).ok());
  expected.push_back(id(jobs[0], "completed"));
  ASSERT_TRUE(store_->Fail(queue_, std::vector<FailItem>{{jobs[1].token, {"boom", "T", ""}, true, {}}}).ok());
  expected.push_back(id(jobs[1], "discarded"));
  ASSERT_TRUE(store_->Cancel(queue_, std::vector<JobId>{jobs[2].job.id}, "not needed").ok());
  expected.push_back(id(jobs[2], "cancelled"));
  Sql(absl::StrCat("select tenure.complete('", jobs[3].token.ToString(), "')"));
  expected.push_back(id(jobs[3], "completed"));
  // A lease that runs out at the crash budget.
  const auto crashed = Claim(queue_, 1, absl::Microseconds(1));
  Sql("update tenure.job set crashes = 4");
  std::vector<ReadyRange> ready;
  ASSERT_TRUE(
      store_->Reap(queue_, std::vector<LeaseRef>{{queue_, crashed[0].job.id.seq, crashed[0].token.number}}, &ready)
          .ok());
  expected.push_back(id(crashed[0], "discarded"));
  // A job that did not start in time.
  NewJob late{.kind = "k"};
  late.ttl = absl::Microseconds(1);
  const auto enqueued = store_->Enqueue(queue_, std::vector<NewJob>{late});
  ASSERT_TRUE(enqueued.ok());
  ASSERT_EQ(*store_->ExpireJobs(Lead("lifecycle"), 10), 1);
  expected.push_back(enqueued->jobs[0].id.ToString() + ".expired");
  // A failure that is tried again is no end.
  const auto retried = Claim(queue_, 1);
  ASSERT_TRUE(
      store_->Fail(queue_, std::vector<FailItem>{{retried[0].token, {"again", "", ""}, false, absl::Hours(1)}}).ok());

  const EventPage page = Take(target);
  std::vector<std::string> ids;
  for (const JobEvent& event : page.events) ids.push_back(event.Id());
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(page.events[1].error_message, "boom");
  EXPECT_EQ(page.events[1].error_type, "T");
  EXPECT_EQ(page.events[1].failures, 1);
  EXPECT_EQ(page.events[1].queue, "q");
  EXPECT_EQ(page.events[1].kind, "k");
  EXPECT_EQ(page.events[1].attempt, 1);
  EXPECT_EQ(page.events[1].effect_key, jobs[1].job.id.ToString());
  EXPECT_THAT(page.events[2].error_message, HasSubstr("not needed"));
  EXPECT_EQ(page.events[4].error_type, "LeaseExpired");
  EXPECT_EQ(page.events[4].crashes, 5);
}

TEST_F(TargetStoreTest, OnlyWhatATargetListensToIsTold) {
  const int32_t other = store_->EnsureQueue("other", true)->id;
  const int64_t of_queue = Make("of-queue", Webhook({"q"}, EventBit(JobState::kCompleted)));
  Complete(other, 3);
  EXPECT_EQ(Sql("select count(*) from tenure.outbox"), "0") << "nobody listens to it";
  EXPECT_FALSE(Fresh(of_queue));
  const int64_t of_all = Make("of-all", Webhook({}, EventBit(JobState::kCancelled)));
  const auto cancelled = Claim(other, 1);
  ASSERT_TRUE(store_->Cancel(other, std::vector<JobId>{cancelled[0].job.id}, "").ok());
  const auto completed = Complete(queue_, 2);
  EXPECT_TRUE(Fresh(of_queue));
  EXPECT_THAT(TakeAll(of_queue), ::testing::ElementsAreArray(completed));
  EXPECT_THAT(TakeAll(of_all), ElementsAre(cancelled[0].job.id.ToString() + ".cancelled"));
  EXPECT_FALSE(Fresh(of_queue));
  EXPECT_FALSE(Fresh(of_all));
  // A queue that is made later is one of all.
  const auto late = Claim(store_->EnsureQueue("late", true)->id, 1);
  ASSERT_TRUE(store_->Cancel(late[0].job.id.queue, std::vector<JobId>{late[0].job.id}, "").ok());
  EXPECT_THAT(TakeAll(of_all), SizeIs(1));
  EXPECT_THAT(TakeAll(of_queue), IsEmpty());
}

TEST_F(TargetStoreTest, PagesGoOnWhereTheLastOneWasFinished) {
  const int64_t target = Make("t");
  auto expected = Complete(queue_, 25);
  EXPECT_EQ(TakeAll(target, 10), expected);
  EXPECT_EQ(store_->GetTarget("t")->taken, 25);
  expected = Complete(queue_, 5);
  const EventPage page = Take(target, 3);
  EXPECT_EQ(page.first, 26);
  EXPECT_TRUE(page.more);
  // Not finished: the same again, and more that ended meanwhile comes after it.
  const auto later = Complete(queue_, 1);
  const EventPage again = Take(target, 3);
  ASSERT_THAT(again.events, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(again.events[i].Id(), page.events[i].Id());
  // Only the first two were sent.
  ASSERT_EQ(store_->FinishPage(fence_, target, again, 2, {}, "the rest is not sent"), absl::OkStatus());
  EXPECT_EQ(store_->GetTarget("t")->last_error, "the rest is not sent");
  expected.erase(expected.begin(), expected.begin() + 2);
  expected.insert(expected.end(), later.begin(), later.end());
  // What ended after the window was opened comes with the next one.
  std::vector<std::string> taken = TakeAll(target, 2);
  EXPECT_TRUE(Fresh(target));
  for (const std::string& id : TakeAll(target, 2)) taken.push_back(id);
  EXPECT_EQ(taken, expected);
  EXPECT_EQ(store_->GetTarget("t")->last_error, "");
  EXPECT_EQ(ReasonOf(store_->FinishPage(fence_, target, again, 3, {}, "")), "PAGE_STALE");
}

// Transactions that end jobs and commit late and in any order, some of them never.
TEST_F(TargetStoreTest, WhateverTheOrderOfCommitsEachEventIsTakenOnce) {
  const int64_t target = Make("t");
  std::mt19937 random(7);
  std::vector<std::string> taken;
  std::set<std::string> expected;
  constexpr int kSessions = 6;
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < kSessions; ++i) sessions.push_back(std::make_unique<Session>(database_.url()));
  std::vector<std::vector<std::string>> open(kSessions);
  for (int step = 0; step < 150; ++step) {
    const size_t at = random() % kSessions;
    if (open[at].empty()) {
      sessions[at]->Run("begin");
      const int jobs = 1 + static_cast<int>(random() % 3);
      const bool savepoint = random() % 3 == 0;
      for (const ClaimedJob& job : Claim(queue_, jobs)) {
        if (savepoint) sessions[at]->Run("savepoint s");
        sessions[at]->Run(absl::StrCat("select tenure.complete('", job.token.ToString(), "')"));
        open[at].push_back(job.job.id.ToString() + ".completed");
      }
    } else {
      const bool commit = random() % 4 != 0;
      sessions[at]->Run(commit ? "commit" : "rollback");
      if (commit) expected.insert(open[at].begin(), open[at].end());
      open[at].clear();
    }
    if (random() % 3 == 0) {
      // Sometimes a page is taken and its taker dies.
      const int limit = 1 + static_cast<int>(random() % 4);
      const EventPage page = Take(target, limit);
      if (random() % 4 != 0) {
        for (const JobEvent& event : page.events) taken.push_back(event.Id());
        ASSERT_EQ(Finish(target, page), absl::OkStatus());
      }
    }
  }
  for (size_t i = 0; i < kSessions; ++i) {
    if (open[i].empty()) continue;
    sessions[i]->Run("commit");
    expected.insert(open[i].begin(), open[i].end());
  }
  for (int round = 0; round < 3; ++round) {
    for (const std::string& id : TakeAll(target, 3)) taken.push_back(id);
  }
  EXPECT_EQ(taken.size(), expected.size()) << "none twice";
  EXPECT_EQ(std::set<std::string>(taken.begin(), taken.end()), expected);
  EXPECT_EQ(store_->GetTarget("t")->taken, static_cast<int64_t>(expected.size()));
  EXPECT_FALSE(Fresh(target));
}

TEST_F(TargetStoreTest, APlannedPageStaysTheSameUntilItIsFinished) {
  const int64_t target = Make("t", Webhook({"q"}));
  const auto expected = Complete(queue_, 4);
  const EventPage page = Take(target, 1000, /*planned=*/true);
  ASSERT_THAT(page.events, SizeIs(4));
  // Its taker dies; more ends, and the target's owner changes his mind.
  const auto later = Complete(queue_, 2);
  TargetSettings change;
  change.events = EventBit(JobState::kExpired);
  ASSERT_TRUE(store_->UpdateTarget("t", change, {}, {"events"}, [](const auto&) { return absl::OkStatus(); }).ok());
  const EventPage again = Take(target, 2, /*planned=*/true);
  ASSERT_THAT(again.events, SizeIs(4));
  EXPECT_EQ(again.first, 1);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(again.events[i].Id(), expected[i]);
  ASSERT_EQ(Finish(target, again), absl::OkStatus());
  EXPECT_THAT(TakeAll(target), IsEmpty()) << "the new settings hold for what comes after";
  EXPECT_THAT(later, SizeIs(2));
}

TEST_F(TargetStoreTest, WhatWasRefusedIsSentAgainUntilItIsDeadAndThenByRedrive) {
  const int64_t target = Make("t");
  const auto ids = Complete(queue_, 3);
  const EventPage page = Take(target);
  ASSERT_EQ(Finish(target, page,
                   {{ids[0], "body 0", "status 500", absl::ZeroDuration(), false},
                    {ids[1], "body 1", "status 500", absl::Hours(1), false},
                    {ids[2], "body 2", "status 400", absl::ZeroDuration(), true}}),
            absl::OkStatus());
  EXPECT_EQ(store_->GetTarget("t")->waiting, 2);
  EXPECT_EQ(store_->GetTarget("t")->dead, 1);
  auto due = store_->DueDeliveries(target, 10);
  ASSERT_EQ(due.status(), absl::OkStatus());
  ASSERT_THAT(*due, SizeIs(1));
  EXPECT_EQ((*due)[0].event_id, ids[0]);
  EXPECT_EQ((*due)[0].body, "body 0");
  EXPECT_EQ((*due)[0].attempts, 1);
  EXPECT_LE(*(*store_->LoadTargets(TargetPurpose::kNotify))[0].next_delivery, absl::ZeroDuration());
  ASSERT_EQ(store_->SettleDeliveries(
                fence_, target,
                std::vector<DeliveryOutcome>{{(*due)[0].id, false, "status 503", absl::ZeroDuration(), true}}),
            absl::OkStatus());
  EXPECT_EQ(store_->GetTarget("t")->last_error, "status 503");
  auto dead = store_->ListDeadDeliveries("t", 0, 10);
  ASSERT_EQ(dead.status(), absl::OkStatus());
  ASSERT_THAT(*dead, SizeIs(2));
  EXPECT_EQ((*dead)[0].event_id, ids[0]);
  EXPECT_EQ((*dead)[0].attempts, 2);
  EXPECT_THAT(*store_->ListDeadDeliveries("t", (*dead)[0].id, 10), SizeIs(1));

  const auto one = store_->RedriveDeliveries("t", std::vector<int64_t>{(*dead)[1].id});
  ASSERT_EQ(one.status(), absl::OkStatus());
  EXPECT_EQ(one->count, 1);
  EXPECT_EQ(store_->RedriveDeliveries("t", {})->count, 1);
  EXPECT_EQ(store_->RedriveDeliveries("t", {})->count, 0);
  due = store_->DueDeliveries(target, 10);
  ASSERT_THAT(*due, SizeIs(2));
  EXPECT_EQ((*due)[0].attempts, 0);
  std::vector<DeliveryOutcome> accepted;
  for (const Delivery& delivery : *due) accepted.push_back({delivery.id, true, "", absl::ZeroDuration(), false});
  ASSERT_EQ(store_->SettleDeliveries(fence_, target, accepted), absl::OkStatus());
  EXPECT_EQ(store_->GetTarget("t")->waiting, 1);
  EXPECT_EQ(store_->GetTarget("t")->last_error, "");

  Sql("update tenure.delivery set dead = true, last_failed_at = now() - interval '40 days'");
  EXPECT_EQ(*store_->PruneDeliveries(fence_, target, absl::Hours(24 * 41), 10), 0);
  EXPECT_EQ(*store_->PruneDeliveries(fence_, target, absl::Hours(24 * 30), 10), 1);
}

TEST_F(TargetStoreTest, AStaleLeaderTakesNothingAndMovesNothing) {
  const int64_t target = Make("t");
  const auto ids = Complete(queue_, 2);
  const EventPage page = Take(target);
  // Paused between its read and its write; another one leads meanwhile.
  const Fence stale = fence_;
  ASSERT_EQ(store_->ReleaseLeader(stale), absl::OkStatus());
  fence_ = Lead("notify");
  EXPECT_EQ(ReasonOf(store_->TakePage(stale, target, 10, false).status()), "TERM_OVER");
  const std::vector<Refused> refused = {{ids[0], "b", "e", absl::ZeroDuration(), false}};
  EXPECT_EQ(ReasonOf(store_->FinishPage(stale, target, page, 2, refused, "")), "TERM_OVER");
  EXPECT_EQ(Sql("select count(*) from tenure.delivery"), "0");
  EXPECT_EQ(ReasonOf(store_->NoteTarget(stale, target, "e", std::nullopt)), "TERM_OVER");
  EXPECT_EQ(ReasonOf(store_->RotateOutbox(stale)), "TERM_OVER");
  EXPECT_EQ(ReasonOf(store_->PruneDeliveries(stale, target, absl::ZeroDuration(), 1).status()), "TERM_OVER");
  ASSERT_EQ(Finish(target, page, refused), absl::OkStatus()) << "the new leader goes on with the page";
  const auto due = store_->DueDeliveries(target, 10);
  const std::vector<DeliveryOutcome> outcomes = {{(*due)[0].id, true, "", absl::ZeroDuration(), false}};
  EXPECT_EQ(ReasonOf(store_->SettleDeliveries(stale, target, outcomes)), "TERM_OVER");
  EXPECT_EQ(store_->GetTarget("t")->waiting, 1);
}

TEST_F(TargetStoreTest, ADeletedTargetIsNothingToItsWorker) {
  const int64_t target = Make("t");
  Complete(queue_, 1);
  const EventPage page = Take(target);
  ASSERT_EQ(store_->DeleteTarget("t"), absl::OkStatus());
  EXPECT_TRUE(Take(target).nothing);
  EXPECT_EQ(ReasonOf(Finish(target, page)), "PAGE_STALE");
}

TEST_F(TargetStoreTest, ASlotIsEmptiedWhenEveryTargetHasPassedItAndNotBefore) {
  const int64_t quick = Make("quick"), slow = Make("slow");
  const auto ids = Complete(queue_, 3);
  // All in the slot that is written next.
  auto age = [&] {
    Sql("update tenure.outbox set slot = (tenure.event_slot() + 1) % 4");
    Sql("update tenure.outbox_rotation set rotated_at = now() - interval '11 minutes'");
  };
  age();
  EXPECT_THAT(TakeAll(quick), SizeIs(3));
  ASSERT_EQ(store_->RotateOutbox(fence_), absl::OkStatus());
  EXPECT_EQ(Sql("select count(*) from tenure.outbox"), "3") << "one has not taken them";
  ASSERT_TRUE(store_->SetTargetPaused("slow", true).ok());
  age();
  ASSERT_EQ(store_->RotateOutbox(fence_), absl::OkStatus());
  EXPECT_EQ(Sql("select count(*) from tenure.outbox"), "3") << "paused or not";
  EXPECT_EQ(TakeAll(slow), ids);
  ASSERT_EQ(store_->RotateOutbox(fence_), absl::OkStatus());
  EXPECT_EQ(Sql("select count(*) from tenure.outbox"), "3") << "at most every ten minutes";
  age();
  ASSERT_EQ(store_->RotateOutbox(fence_), absl::OkStatus());
  EXPECT_EQ(Sql("select count(*) from tenure.outbox"), "0");
  // Somebody who writes to the slot is not waited for long.
  Complete(queue_, 1);
  age();
  TakeAll(quick);
  TakeAll(slow);
  Session open(database_.url());
  open.Run("begin");
  open.Run("lock table tenure.outbox in row exclusive mode");
  EXPECT_EQ(store_->RotateOutbox(fence_), absl::OkStatus());
  EXPECT_EQ(Sql("select count(*) from tenure.outbox"), "1");
  open.Run("rollback");
}

}  // namespace
}  // namespace tenure::store
