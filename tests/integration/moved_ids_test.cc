// The id of a job that was moved stands for the job that it became: in every call that takes an id, over chains of
// moves, and whoever asks. Layer: tests.
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/status.h"
#include "tests/support/daemon_fixture.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/move_fixture.h"
#include "tests/support/tenurectl.h"

namespace tenure::store {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::In;
using testing::Replica;

class MovedIdTest : public testing::MoveFixture {
 protected:
  MovedIdTest() : replica_engine_(OpenStore(6), "engine") {
    replica_engine_.engine->Start();
    EXPECT_TRUE(replica_engine_.AwaitHealthy());
  }
  engine::Engine& engine() { return *replica_engine_.engine; }

  absl::StatusOr<Job> Get(const JobId& id) {
    return Replica::Await<Job>([&](auto done) { engine().Get(id, absl::ZeroDuration(), In(20), std::move(done)); });
  }
  absl::StatusOr<Job> GetRecord(const JobId& id) {
    return Replica::Await<Job>([&](auto done) { engine().GetRecord(id, std::move(done)); });
  }
  RetryOutcome Retry(const JobId& id, const std::string& request_id = "") {
    const auto outcomes = Replica::Await<std::vector<RetryOutcome>>(
        [&](auto done) { engine().Retry({id}, request_id, std::move(done)); });
    EXPECT_EQ(outcomes.status(), absl::OkStatus());
    return outcomes.ok() ? (*outcomes)[0] : RetryOutcome();
  }
  NamedClaimOutcome ClaimById(const JobId& id, absl::Duration lease = absl::Minutes(1)) {
    engine::NamedClaimCall call;
    call.worker = "w";
    call.ids = {id};
    call.lease = lease;
    const auto outcomes = Replica::Await<std::vector<NamedClaimOutcome>>(
        [&](auto done) { engine().ClaimNamed(call, In(20), std::move(done)); });
    EXPECT_EQ(outcomes.status(), absl::OkStatus());
    return outcomes.ok() ? (*outcomes)[0] : NamedClaimOutcome();
  }
  // Moves what is live of one queue to another; answers where `id` is then.
  JobId MoveBacklog(const JobId& id, const std::string& from = "from", const std::string& to = "to") {
    store_->EnsureQueue(to, true).value();
    Finish(Make({.from = from, .to = to, .source = MoveSource::kBacklog}).id);
    const auto now = store_->WhereNow({&id, 1});
    EXPECT_EQ(now.status(), absl::OkStatus());
    EXPECT_NE((*now)[0], id) << "it was moved";
    return (*now)[0];
  }

  Replica replica_engine_;
};

TEST_F(MovedIdTest, EveryCallFollowsTheLinksOverAChainOfMoves) {
  const JobId old = Enqueue(1)[0];
  const JobId second = MoveBacklog(old), third = MoveBacklog(old, "to", "third");
  EXPECT_NE(second, third);
  for (const JobId& id : {old, second, third}) {
    EXPECT_EQ(Get(id)->id, third);
    const auto explained = Replica::Await<Explanation>([&](auto done) { engine().Explain(id, std::move(done)); });
    ASSERT_EQ(explained.status(), absl::OkStatus());
    EXPECT_EQ(explained->job.id, third);
    EXPECT_EQ(DetailsOf(Retry(id).status).reason, "NOT_RETRYABLE") << "it is ready";
  }
  const auto record = GetRecord(old);
  ASSERT_EQ(record.status(), absl::OkStatus());
  EXPECT_EQ(record->id, old);
  EXPECT_EQ(record->state, JobState::kCancelled);
  EXPECT_EQ(record->error->type, "Moved");
  EXPECT_EQ(record->forwarded_to, third.ToString()) << "where it is now, not where it went first";
  EXPECT_EQ(ClaimById(old).job->job.id, third);
  EXPECT_EQ(DetailsOf(ClaimById(second).refusal).reason, "LEASE_HELD");
  const auto cancelled = replica_engine_.Cancel({old});
  ASSERT_TRUE(cancelled.ok() && (*cancelled)[0].status.ok()) << cancelled.status();
  EXPECT_EQ((*cancelled)[0].id, third);
  EXPECT_EQ((*cancelled)[0].previous, JobState::kLeased);
  EXPECT_EQ(Count("tenure.job"), 0) << "nothing lives on";
}

TEST_F(MovedIdTest, ACancelOfManyFollowsThoseThatWereMovedAndIsSafeToRepeat) {
  const JobId moved = Enqueue(1)[0];
  const JobId now = MoveBacklog(moved);
  const JobId live = Enqueue(1)[0];
  const JobId never{moved.queue, moved.day, 999'999'999};
  JobId other_day = moved;
  other_day.day -= 1;
  for (const JobState before : {JobState::kReady, JobState::kCancelled}) {
    const auto answers = replica_engine_.Cancel({moved, live, now, never, other_day, moved});
    ASSERT_EQ(answers.status(), absl::OkStatus());
    EXPECT_EQ((*answers)[0].status, absl::OkStatus());
    EXPECT_EQ((*answers)[0].id, now);
    EXPECT_EQ((*answers)[1].previous, before);
    EXPECT_EQ((*answers)[1].id, live);
    EXPECT_EQ((*answers)[2].id, now);
    EXPECT_EQ((*answers)[2].previous, before);
    EXPECT_EQ(DetailsOf((*answers)[3].status).reason, "JOB_NOT_FOUND");
    EXPECT_EQ(DetailsOf((*answers)[4].status).reason, "JOB_NOT_FOUND") << "no id of any job";
    EXPECT_EQ((*answers)[5].id, now);
  }
  EXPECT_EQ(Count("tenure.job"), 0);
  EXPECT_EQ(Count("tenure.history where error_type = 'Cancelled'"), 2);
}

TEST_F(MovedIdTest, ARetryMakesNoSecondCopyOfAJobThatWasMoved) {
  const JobId dead = Enqueue(1)[0];
  Kill(from_, 1);
  const JobId first_retry = Retry(dead, "before").id;
  Kill(from_, 1);
  Sql(absl::StrCat("delete from tenure.dead_letter where id = ", first_retry.seq));
  EXPECT_EQ(Finish(Make({}).id), 1);
  const auto now = *store_->WhereNow({&dead, 1});
  EXPECT_EQ(DetailsOf(Retry(dead).status).reason, "NOT_RETRYABLE") << "it runs already, elsewhere";
  EXPECT_EQ(Retry(dead, "before").id, first_retry) << "the answer of the call that this one repeats";
  EXPECT_EQ(Count("tenure.job"), 1);
  Kill(to_, 1);
  const RetryOutcome again = Retry(dead, "after");
  ASSERT_EQ(again.status, absl::OkStatus());
  EXPECT_EQ(again.id.queue, to_) << "in the queue in which it died last";
  EXPECT_EQ(store_->Get(again.id)->retry_of, now[0].ToString());
  EXPECT_EQ(Retry(dead, "after").id, again.id);
  EXPECT_EQ(Count("tenure.job"), 1);

  const JobId later = Enqueue(1, absl::Hours(1))[0];
  const JobId there = MoveBacklog(later);
  EXPECT_EQ(Retry(later).id, there) << "due now, not made again";
  EXPECT_EQ(store_->Get(there)->state, JobState::kReady);
}

TEST_F(MovedIdTest, WhoWaitsForTheOutcomeGetsThatOfTheJobThatItBecame) {
  const std::vector<JobId> ids = Enqueue(2);
  std::vector<std::promise<absl::StatusOr<Job>>> answers(2);
  const auto wait = [&](size_t i) {
    engine().Get(ids[i], absl::Seconds(30), In(40),
                 [&answers, i](absl::StatusOr<Job> job) { answers[i].set_value(std::move(job)); });
  };
  wait(0);  // Before the move, the other one after it.
  const JobId first = MoveBacklog(ids[0]);
  wait(1);
  std::vector<std::future<absl::StatusOr<Job>>> futures;
  for (auto& answer : answers) futures.push_back(answer.get_future());
  EXPECT_EQ(futures[0].wait_for(std::chrono::milliseconds(200)), std::future_status::timeout)
      << "the move is no outcome";
  const JobId second = (*store_->WhereNow({&ids[1], 1}))[0];
  for (const JobId& id : {first, second}) {
    const auto settled = replica_engine_.Complete({{ClaimById(id).job->token, Payload{"done", "text/plain"}, {}}});
    ASSERT_TRUE(settled.ok() && (*settled)[0].status.ok()) << settled.status();
  }
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(futures[i].wait_for(std::chrono::seconds(20)), std::future_status::ready);
    const auto job = futures[i].get();
    ASSERT_EQ(job.status(), absl::OkStatus());
    EXPECT_EQ(job->id, i == 0 ? first : second);
    EXPECT_EQ(job->state, JobState::kCompleted);
  }
}

TEST_F(MovedIdTest, DependsOnAnOldIdWaitsForTheJobThatItBecame) {
  const JobId old = Enqueue(1)[0];
  Enqueue(1);
  Kill(from_, 1);  // The first of the two.
  EXPECT_EQ(Finish(Make({}).id), 1);
  const JobId now = (*store_->WhereNow({&old, 1}))[0];
  const JobId live = MoveBacklog(*JobId::Parse(
      Sql(absl::StrCat("select tenure.job_text(queue_id, day, id) from tenure.job where queue_id = ", from_)), "id"));
  GraphJob waits;
  waits.queue = from_;
  waits.job.kind = "k";
  waits.job.payload = {"{}", "application/json"};
  // The old id and the new one are the same job.
  waits.job.depends_on = DependsOn{{old, now, live}, {}, false, false};
  const std::vector<GraphJob> graph{waits};
  const auto made = store_->EnqueueGraph(graph);
  ASSERT_TRUE(made.ok() && made->jobs[0].status.ok()) << made.status();
  EXPECT_TRUE(made->blocked.at(from_).empty() && made->blocked.count(to_) == 0)
      << "nothing that it waits for has ended: the dead letter lives on";
  EXPECT_THAT(store_->Explain(made->jobs[0].id)->causes[0].holders, ::testing::UnorderedElementsAre(now, live));
  Kill(to_, 2);
  const std::vector<int64_t> ended{now.seq, live.seq};
  EXPECT_EQ(store_->ResolveDependents(to_, ended)->cancelled, 1);
}

TEST_F(MovedIdTest, AStaleTokenOfAMovedJobHasLostItsLeaseAndItsJobIsNotCancelled) {
  const JobId id = Enqueue(1)[0];
  const LeaseToken token = ClaimById(id).job->token;
  ASSERT_TRUE(replica_engine_.Release({{token, absl::ZeroDuration()}}).ok());
  MoveBacklog(id);
  EXPECT_EQ(DetailsOf((*replica_engine_.Complete({{token, std::nullopt, {}}}))[0].status).reason, "LEASE_LOST");
  EXPECT_EQ(DetailsOf((*replica_engine_.Extend({{token, std::nullopt, std::nullopt}}))[0].status).reason, "LEASE_LOST");
  EXPECT_THAT(SqlError(absl::StrCat("select tenure.complete('", token.ToString(), "')")), HasSubstr("LEASE_LOST"));
}

TEST_F(MovedIdTest, ALinkIsFollowedAlsoWhenTheOldRecordHasExpired) {
  const JobId old = Enqueue(1)[0];
  const JobId now = MoveBacklog(old);
  Sql("delete from tenure.history");
  EXPECT_EQ(Get(old)->id, now);
  EXPECT_EQ(DetailsOf(GetRecord(old).status()).reason, "JOB_NOT_FOUND");
  const auto cancelled = replica_engine_.Cancel({old});
  ASSERT_EQ(cancelled.status(), absl::OkStatus());
  EXPECT_EQ((*cancelled)[0].id, now);
  Sql("delete from tenure.forward");
  EXPECT_EQ(DetailsOf(Get(old).status()).reason, "JOB_NOT_FOUND");
}

class MovedIdDaemonTest : public testing::DaemonFixture {};

TEST_F(MovedIdDaemonTest, ThroughTheClientAndTenurectl) {
  const auto daemon = Start();
  client::Client client = Connect(daemon->grpc_address());
  const auto run = [&](const std::string& arguments) {
    return testing::RunTenurectl(daemon->grpc_address(), arguments);
  };
  const std::string id = client.Enqueue({.queue = "from", .kind = "k"})->job_id;
  std::jthread mover([&] {
    client::Client own = Connect(daemon->grpc_address());
    EXPECT_EQ(own.CreateMove({.from_queue = "from", .to_queue = "to", .source = client::MoveSource::kBacklog}).status(),
              absl::OkStatus());
    EXPECT_TRUE(Eventually(20, [&] { return own.Get(id)->queue == "to"; }));
    client::ClaimOptions claim;
    claim.worker_id = "w";
    claim.queues = {{"to"}};
    claim.wait = std::chrono::seconds(20);
    const auto claimed = own.Claim(claim);
    ASSERT_TRUE(claimed.ok() && claimed->jobs.size() == 1) << claimed.status();
    EXPECT_EQ(own.Complete({.lease_token = claimed->jobs[0].lease_token}).status(), absl::OkStatus());
  });
  testing::CliRun got = run(absl::StrCat("job get ", id, " --wait 40s"));
  EXPECT_THAT(got.out,
              AllOf(ContainsRegex("state +completed"), ContainsRegex("queue +to"), ContainsRegex("retry of +" + id)));
  EXPECT_THAT(got.err, HasSubstr(id + " was moved"));
  mover.join();
  const std::string now = client.Get(id)->id;
  got = run(absl::StrCat("job get --exact ", id));
  EXPECT_THAT(got.out, AllOf(ContainsRegex("state +cancelled"), ContainsRegex("forwarded to +" + now)));
  EXPECT_EQ(client.GetRecord(id)->forwarded_to, now);
  EXPECT_EQ(run(absl::StrCat("job get --exact --wait 1s ", id)).status, 2);
  got = run(absl::StrCat("job explain ", id));
  EXPECT_THAT(got.out, HasSubstr(absl::StrCat("Job ", now, " is completed")));
  EXPECT_EQ(client.Explain(id)->job_id, now);
  got = run(absl::StrCat("job cancel ", id));
  EXPECT_NE(got.status, 0);
  EXPECT_THAT(got.err, HasSubstr("ALREADY_SETTLED"));
  EXPECT_THAT(got.err, HasSubstr(now)) << "names the job that has ended";
  got = run(absl::StrCat("job retry ", id));
  EXPECT_EQ(got.status, 0) << got.err;
  const auto again = client.Retry(id);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(client.Get(*again)->queue, "to");
  EXPECT_EQ(client.Cancel(*again)->job_id, *again);
}

}  // namespace
}  // namespace tenure::store
