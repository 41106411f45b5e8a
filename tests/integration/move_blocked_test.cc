// Moves of a backlog that stands at the gates of its queue: it stands at those of the other queue then, in its order,
// with its keys and with what it waits for. Layer: tests.
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/status.h"
#include "server/store/fair_choice.h"
#include "server/store/postgres/connection.h"
#include "tests/support/daemon_fixture.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/move_fixture.h"

namespace tenure::store {
namespace {

using ::testing::ElementsAre;
using testing::Eventually;
using ::testing::IsSupersetOf;

class MoveBlockedTest : public testing::MoveFixture {
 protected:
  static NewJob Job(std::vector<std::string> keys = {}, std::string group = "", std::string kind = "k") {
    NewJob job;
    job.kind = std::move(kind);
    job.payload = {"{}", "application/json"};
    job.priority = 3;
    job.concurrency_keys = std::move(keys);
    job.group = std::move(group);
    return job;
  }
  static NewJob Keyed(const std::string& key, OnConflict policy = OnConflict::kReturn) {
    NewJob job = Job();
    job.unique = Unique{key,
                        false,
                        {JobState::kScheduled, JobState::kBlocked, JobState::kReady, JobState::kLeased},
                        absl::ZeroDuration(),
                        policy};
    return job;
  }
  std::vector<JobId> Add(const std::vector<NewJob>& jobs, int32_t queue = 0) {
    const auto made = store_->Enqueue(queue == 0 ? from_ : queue, jobs);
    EXPECT_EQ(made.status(), absl::OkStatus());
    std::vector<JobId> ids;
    for (const EnqueueOutcome& outcome : made->jobs) ids.push_back(outcome.id);
    return ids;
  }
  EnqueueOutcome AddUnique(int32_t queue, const NewJob& job) {
    const std::vector<NewJob> jobs{job};
    const auto made = store_->EnqueueUnique(queue, jobs);
    EXPECT_EQ(made.status(), absl::OkStatus());
    return made->jobs[0];
  }
  JobId AddWaiting(int32_t queue, std::vector<JobId> after, NewJob job = Job()) {
    GraphJob waits;
    waits.queue = queue;
    waits.job = std::move(job);
    waits.job.depends_on = DependsOn{std::move(after), {}, false, false};
    const std::vector<GraphJob> graph{waits};
    const auto made = store_->EnqueueGraph(graph);
    EXPECT_TRUE(made.ok() && made->jobs[0].status.ok()) << made.status();
    return made->jobs[0].id;
  }
  AdmitResult Admit(int32_t queue, const std::vector<std::string>& names) {
    return store_->Admit(queue, names, 1000, FairWindow::kLeast).value();
  }
  void LimitQueue(int32_t queue, int max) {
    ASSERT_TRUE(store_->SetLimit(queue, LimitScope::kQueue, "", {max, std::nullopt}).ok());
  }
  int64_t MoveAll() { return Finish(Make({.source = MoveSource::kBacklog}).id); }
  JobId Now(const JobId& id) { return (*store_->WhereNow({&id, 1}))[0]; }
  ClaimedJob Claim(const JobId& id) {
    const auto claimed = store_->ClaimNamed(id.queue, replica_, "w", absl::Minutes(1), "", {&id, 1}, 1 << 20);
    EXPECT_TRUE(claimed.ok() && (*claimed)[0].job) << claimed.status();
    return claimed.ok() && (*claimed)[0].job ? *(*claimed)[0].job : ClaimedJob();
  }
  void Complete(const LeaseToken& token) {
    const std::vector<CompleteItem> items{{token, std::nullopt, {}}};
    EXPECT_EQ(store_->Complete(token.job.queue, items)->items[0].state, TokenState::kWon);
  }
  // "state/gate" of the live jobs of a queue, in the order of their ids.
  std::string States(int32_t queue) {
    return Sql(
        absl::StrCat("select string_agg(state::text || '/' || coalesce(gate::text, '-'), ' ' order by id) from "
                     "tenure.job where queue_id = ",
                     queue));
  }
  std::string Counts() {
    return Sql(
        "select string_agg(queue_id || ': ' || s || ' ' || b || ' ' || r || ' ' || l, ', ' order by queue_id) from "
        "(select "
        "queue_id, coalesce(sum(scheduled), 0) as s, coalesce(sum(blocked), 0) as b, coalesce(sum(ready), 0) as r, "
        "coalesce(sum(leased), 0) as l from tenure.event group by queue_id having bool_or(type in (1, 2))) e");
  }
  std::string CountsOfRows() {
    return Sql(
        "select string_agg(q.id || ': ' || (select count(*) filter (where state = 1) || ' ' || count(*) filter (where "
        "state = 2) "
        "|| ' ' || count(*) filter (where state = 3) || ' ' || count(*) filter (where state = 4) from tenure.job j "
        "where "
        "j.queue_id = q.id), ', ' order by q.id) from tenure.queue q where exists (select 1 from tenure.event e where "
        "e.queue_id = q.id and e.type in (1, 2))");
  }
};

TEST_F(MoveBlockedTest, WhatStandsAtTheQueuesGateGoesAlong) {
  LimitQueue(from_, 1);
  Add(std::vector<NewJob>(5, Job()));
  Admit(from_, {"q"});
  ASSERT_EQ(States(from_), "3/0 2/6 2/6 2/6 2/6");
  EXPECT_EQ(MoveAll(), 5);
  EXPECT_EQ(States(from_), "");
  EXPECT_EQ(States(to_), "3/- 3/- 3/- 3/- 3/-") << "the other queue has no limit";
  EXPECT_EQ(Counts(), CountsOfRows());
}

TEST_F(MoveBlockedTest, AtTheOtherQueueItStandsAtThatQueuesGatesInItsOrder) {
  LimitQueue(from_, 1);
  LimitQueue(to_, 2);
  const std::vector<JobId> ids = Add({Job({"a"}, "g"), Job({"a"}, "g"), Job({"b"}), Job()});
  Admit(from_, {"gg", "ka", "kb", "q"});
  const std::string start = store_->ReadStart()->snapshot;
  EXPECT_EQ(MoveAll(), 4);
  EXPECT_EQ(States(to_), "2/1 2/1 2/2 2/6");
  const auto events = store_->ReadEvents(start);
  ASSERT_TRUE(events.ok()) << events.status();
  EXPECT_THAT(events->admit.at(to_), IsSupersetOf({"gg", "ka", "kb", "q"}));
  EXPECT_THAT(events->admit.at(from_), IsSupersetOf({"gg", "ka", "q"})) << "where slots are free now";
  EXPECT_EQ(Admit(to_, {"gg", "ka", "kb", "q"}).admitted, 2) << "the limit of the queue";
  EXPECT_EQ(Sql(absl::StrCat("select state || '/' || gate from tenure.job where id = ", Now(ids[1]).seq)), "2/1")
      << "the second of its group";
  EXPECT_LT(Now(ids[0]).seq, Now(ids[1]).seq);
  EXPECT_EQ(Counts(), CountsOfRows());
}

TEST_F(MoveBlockedTest, AGroupWaitsForItsFirstJobAndKeepsItsOrder) {
  const std::vector<JobId> ids = Add({Job({}, "g"), Job({}, "g"), Job({}, "g"), Job({}, "other")});
  Admit(from_, {"gg", "gother"});
  const ClaimedJob head = Claim(ids[0]);
  const Move move = Make({.source = MoveSource::kBacklog});
  EXPECT_EQ(Step(move.id).moved, 1) << "the other group alone: a job of the first one is at work";
  for (int pass = 0; pass < 3; ++pass) {
    const MoveStep step = Step(move.id);
    EXPECT_EQ(step.moved, 0);
    EXPECT_FALSE(step.ended) << "some are held back";
  }
  // It fails, and is due again later: it goes first.
  const std::vector<FailItem> items{{head.token, {.message = "no"}, false, absl::Hours(1)}};
  ASSERT_TRUE(store_->Fail(from_, items).ok());
  EXPECT_EQ(Finish(move.id), 3);
  EXPECT_EQ(States(to_), "2/1 1/- 2/1 2/1");
  EXPECT_LT(Now(ids[0]).seq, Now(ids[1]).seq);
  EXPECT_LT(Now(ids[1]).seq, Now(ids[2]).seq);
  EXPECT_EQ(Counts(), CountsOfRows());
}

TEST_F(MoveBlockedTest, APassThatOnlyHeldBackIsNotRepeatedAtOnce) {
  const std::vector<JobId> ids = Add({Job({}, "g"), Job({}, "g")});
  Admit(from_, {"gg"});
  const LeaseToken token = Claim(ids[0]).token;
  const Move move = Make({.source = MoveSource::kBacklog});
  absl::Duration longest;
  for (int steps = 0; steps < 4; ++steps) longest = std::max(longest, Step(move.id).wait);
  EXPECT_GE(longest, absl::Seconds(1));
  Complete(token);
  EXPECT_EQ(Finish(move.id), 1);
}

TEST_F(MoveBlockedTest, AJobOfAGroupThatSomebodyHoldsKeepsTheLaterOnesBack) {
  const std::vector<JobId> ids = Add({Job({}, "g"), Job({}, "g"), Job()});
  const Move move = Make({.source = MoveSource::kBacklog});
  auto other = postgres::Connection::Open(database_.url(), "other", absl::Seconds(5)).value();
  {
    postgres::Transaction tx(*other, {absl::Seconds(30)});
    ASSERT_TRUE(
        tx.Run(absl::StrCat("select 1 from tenure.job where id = ", ids[0].seq, " for update"), postgres::Params())
            .ok());
    EXPECT_EQ(Step(move.id).moved, 1);
    EXPECT_EQ(Now(ids[1]), ids[1]);
  }
  EXPECT_EQ(Finish(move.id), 2);
  EXPECT_LT(Now(ids[0]).seq, Now(ids[1]).seq);
}

TEST_F(MoveBlockedTest, OfAGroupOfSeveralKindsThoseThatWereAskedForGo) {
  const std::vector<JobId> ids = Add({Job({}, "g", "other"), Job({}, "g"), Job({}, "g")});
  EXPECT_EQ(Finish(Make({.source = MoveSource::kBacklog, .kinds = {"k"}}).id), 2);
  EXPECT_EQ(Now(ids[0]), ids[0]);
  EXPECT_EQ(States(to_), "2/1 2/1");
}

TEST_F(MoveBlockedTest, AUniqueKeyGoesAlongUnlessAJobThereHasIt) {
  const JobId free = AddUnique(from_, Keyed("free")).id, busy = AddUnique(from_, Keyed("busy")).id,
              over = AddUnique(from_, Keyed("over")).id;
  const JobId there = AddUnique(to_, Keyed("busy")).id, ended = AddUnique(to_, Keyed("over")).id;
  ASSERT_TRUE(store_->Cancel(to_, {&ended, 1}, "").ok());
  EXPECT_EQ(MoveAll(), 3);
  for (const auto& [key, holder] : {std::pair("free", Now(free)), {"busy", there}, {"over", Now(over)}}) {
    const EnqueueOutcome again = AddUnique(to_, Keyed(key));
    EXPECT_TRUE(again.existing) << key;
    EXPECT_EQ(again.id, holder) << key;
  }
  EXPECT_EQ(store_->Get(Now(busy))->unique_key, "busy") << "what it was enqueued with; another job holds it";
  EXPECT_FALSE(AddUnique(from_, Keyed("free")).existing) << "given up where it was";
}

TEST_F(MoveBlockedTest, AUniqueKeyThatAnApplicationHoldsKeepsOnlyItsOwnJobs) {
  const JobId held = AddUnique(from_, Keyed("held")).id;
  Add(std::vector<NewJob>(3, Job()));
  const Move move = Make({.source = MoveSource::kBacklog});
  auto other = postgres::Connection::Open(database_.url(), "other", absl::Seconds(5)).value();
  {
    postgres::Transaction tx(*other, {absl::Seconds(30)});
    ASSERT_TRUE(tx.Run("select tenure.enqueue('to', 'k', unique_key => 'held')", postgres::Params()).ok());
    EXPECT_EQ(Step(move.id).moved, 3);
    EXPECT_FALSE(Step(move.id).ended);
  }
  EXPECT_EQ(Finish(move.id), 1);
  const EnqueueOutcome again = AddUnique(to_, Keyed("held"));
  EXPECT_TRUE(again.existing);
  EXPECT_EQ(again.id, Now(held)) << "the application rolled back";
}

TEST_F(MoveBlockedTest, WhoWaitsForJobsGoesAlongAndGoesOnWaiting) {
  ASSERT_TRUE(store_->UpdateQueue("to", {.start_within = absl::Hours(1)}, {"start_within"}).ok());
  const int32_t third = store_->EnsureQueue("third", true)->id;
  const JobId first = Add({Job()})[0], elsewhere = Add({Job()}, third)[0];
  const JobId waits = AddWaiting(from_, {first, elsewhere}, Job({"a"}));
  const JobId last = AddWaiting(third, {waits});
  EXPECT_EQ(MoveAll(), 2);
  EXPECT_EQ(States(to_), "3/- 2/-");
  EXPECT_FALSE(store_->Get(Now(waits))->expires) << "its time to start begins when it is released";
  const std::vector<int64_t> moved{first.seq, waits.seq};
  ASSERT_EQ(store_->ResolveDependents(from_, moved)->cancelled, 0);
  EXPECT_THAT(store_->Explain(waits)->causes[0].holders, ::testing::UnorderedElementsAre(Now(first), elsewhere));
  EXPECT_THAT(store_->Explain(last)->causes[0].holders, ElementsAre(Now(waits)));
  for (const JobId& id : {Now(first), elsewhere}) {
    Complete(Claim(id).token);
    const std::vector<int64_t> ended{id.seq};
    ASSERT_TRUE(store_->ResolveDependents(id.queue, ended).ok());
  }
  EXPECT_EQ(States(to_), "2/2") << "released, and now at its key";
  EXPECT_TRUE(store_->Get(Now(waits))->expires);
  Admit(to_, {"ka"});
  Complete(Claim(Now(waits)).token);
  const std::vector<int64_t> ended{Now(waits).seq};
  EXPECT_EQ(store_->ResolveDependents(to_, ended)->released, 1);
  EXPECT_EQ(States(third), "3/-");
  EXPECT_EQ(Counts(), CountsOfRows());
}

class MoveBlockedDaemonTest : public testing::DaemonFixture {};

TEST_F(MoveBlockedDaemonTest, TheBacklogOfAQueueWithALimitAndTurnsIsWorkedOffElsewhere) {
  const auto daemon = Start(), second = Start();
  client::Client client = Connect(daemon->grpc_address());
  client::QueueSettings settings;
  settings.fair_tenants = true;
  ASSERT_TRUE(client.CreateQueue("from", settings).ok());
  ASSERT_TRUE(client.SetLimit("from", client::LimitScope::kQueue, "", {.max_leased = 1}).ok());
  std::vector<client::JobSpec> specs;
  for (int i = 0; i < 300; ++i) {
    specs.push_back({.queue = "from", .kind = "k", .tenant = absl::StrCat("t", i % 3)});
    if (i % 5 == 0) specs.back().group_key = absl::StrCat("g", i % 3);
  }
  for (const auto& made : client.EnqueueBatch(specs)) ASSERT_TRUE(made.ok()) << made.status();
  const auto move = client.CreateMove({.from_queue = "from", .to_queue = "to", .source = client::MoveSource::kBacklog});
  ASSERT_EQ(move.status(), absl::OkStatus());
  std::set<std::string> done;
  EXPECT_TRUE(Eventually(60, [&] {
    client::ClaimOptions claim;
    claim.worker_id = "w";
    claim.queues = {{"to"}};
    claim.max_jobs = 100;
    claim.wait = std::chrono::milliseconds(200);
    const auto claimed = client.Claim(claim);
    if (!claimed.ok()) return false;
    for (const auto& job : claimed->jobs) {
      if (client.Complete({.lease_token = job.lease_token}).ok()) done.insert(job.job.retry_of);
    }
    return done.size() == specs.size();
  })) << done.size();
  EXPECT_TRUE(Eventually(20, [&] { return client.GetMove(move->id)->state == client::MoveState::kDone; }));
  EXPECT_EQ(client.GetMove(move->id)->moved_jobs, 300);
}

}  // namespace
}  // namespace tenure::store
