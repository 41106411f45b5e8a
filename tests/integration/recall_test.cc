// A queue is given a gate (its tenants take turns, or it gets a limit) while it has a backlog that is ready: what is
// ready goes back to the gate.
#include <libpq-fe.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/background/registry.h"
#include "server/background/supervisor.h"
#include "server/base/status.h"
#include "tests/support/tenants_fixture.h"

namespace tenure::engine {
namespace {

using testing::Eventually;
using testing::Replica;

class RecallTest : public testing::TenantsTest {
 protected:
  // The background worker admission, as a daemon runs it.
  class Worker {
   public:
    Worker(store::Store& store, Replica& told) {
      const background::Dependencies dependencies{
          .store = &store,
          .clock = &Clock::Real(),
          .tunables = &tunables_,
          .note_gates = [&told](const store::GatesByQueue& gates) { told.engine->NoteGates(gates); },
          .metrics = &metrics_};
      supervisor_ = std::make_unique<background::Supervisor>(
          *background::SelectWorkers("admission"), dependencies, metrics_,
          [&told] { return told.engine->replica_id(); },
          background::SupervisorOptions{.lease = absl::Seconds(6), .acquire_interval = absl::Milliseconds(50)});
      supervisor_->Start();
    }
    ~Worker() { supervisor_->Stop(testing::In(20)).IgnoreError(); }

   private:
    Metrics metrics_;
    background::Tunables tunables_ = background::DefaultTunables();
    std::unique_ptr<background::Supervisor> supervisor_;
  };

  // Steps of `each` jobs until one finds the end.
  int Recall(Replica& replica, int each) {
    int recalled = 0;
    for (bool more = true; more;) {
      auto step = replica.store->Recall(Id(), each);
      EXPECT_TRUE(step.ok()) << step.status();
      if (!step.ok()) break;
      recalled += step->recalled;
      more = step->more;
      replica.engine->NoteGates({{Id(), {"q"}}});
    }
    return recalled;
  }
  int32_t Id() { return store_->EnsureQueue("q", false)->id; }
  std::string Ready() { return Sql("select count(*) from tenure.job where state = 3"); }
  std::string AtGate() { return Sql("select count(*) from tenure.job where state = 2 and gate = 6"); }
  std::string Counts() {
    return Sql(
        "select concat_ws(' ', coalesce(sum(blocked), 0), coalesce(sum(ready), 0), coalesce(sum(leased), 0)) "
        "from tenure.event");
  }
};

TEST_F(RecallTest, ABacklogThatWasReadyTakesTurnsOnceTheyAreTurnedOn) {
  auto a = StartReplica("a");
  Create(*a, {});
  Enqueue(*a, "large", 20'000);
  auto leased = a->Claim("q", 30, absl::Seconds(10));
  ASSERT_TRUE(leased.ok() && leased->jobs.size() == 30) << leased.status();
  Worker worker(*a->store, *a);
  Update(*a, Fair(), {"fair_tenants"});
  Enqueue(*a, "small", 3);
  // Bounded by what it takes to send the backlog back, whatever it takes to work it off; this is 20 batches.
  const Clock::TimePoint began = Clock::Real().Now();
  EXPECT_TRUE(Eventually(
      30, [&] { return Sql("select count(*) from tenure.job where state = 3 and tenant = 'small'") == "3"; }));
  RecordProperty("ready_after_ms",
                 absl::StrCat(absl::ToInt64Milliseconds(absl::FromChrono(Clock::Real().Now() - began))));
  EXPECT_LE(std::stoi(Ready()), 4096 + 3) << "no more than turns let in";
  EXPECT_EQ(Work(*a, 10, 1)["small"], 3) << "every other turn is the newcomer's";
  Complete(*a, leased->jobs);
  Work(*a, 20'000 - 30 - 7, 500);
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "0");
  EXPECT_EQ(Counts(), "0 0 0");
}

TEST_F(RecallTest, ALimitHoldsForWhatWasReadyBeforeIt) {
  auto a = StartReplica("a");
  Create(*a, {});
  Enqueue(*a, "t", 500);
  auto leased = a->Claim("q", 3, absl::Seconds(10));
  ASSERT_TRUE(leased.ok() && leased->jobs.size() == 3) << leased.status();
  LimitQueue(*a, {5, std::nullopt});
  EXPECT_EQ(Recall(*a, 100), 497);
  EXPECT_TRUE(Eventually(10, [&] { return Ready() == "2"; })) << Ready() << " beside the three that are leased";
  Complete(*a, leased->jobs);
  Work(*a, 497, 20);
  EXPECT_EQ(Counts(), "0 0 0");
  // A limit that changes later takes nothing from anybody.
  Enqueue(*a, "t", 10);
  EXPECT_TRUE(Eventually(10, [&] { return Ready() == "5"; })) << Ready();
  LimitQueue(*a, {2, std::nullopt});
  EXPECT_EQ(Recall(*a, 100), 0);
  EXPECT_EQ(Ready(), "5");
}

// The queue has a gate, but what is ready has not passed the new limit.
TEST_F(RecallTest, ALimitThatComesToAFairQueueRecallsToo) {
  auto a = StartReplica("a");
  Create(*a, Fair());
  Enqueue(*a, "t", 100);
  EXPECT_TRUE(Eventually(10, [&] { return Ready() != "0"; }));
  LimitQueue(*a, {4, std::nullopt});
  EXPECT_GT(Recall(*a, 100), 0);
  EXPECT_TRUE(Eventually(10, [&] { return Ready() == "4"; })) << Ready();
  // A rate beside the limit is another gate.
  LimitQueue(*a, {4, store::Rate{absl::Hours(1), 1}});
  EXPECT_EQ(Recall(*a, 100), 4);
  EXPECT_TRUE(Eventually(10, [&] { return Ready() == "1"; })) << Ready();
}

// Else their starts would be lost, and at a low rate that is long.
TEST_F(RecallTest, WhatPassesTheNewGateIsNotRecalled) {
  auto a = StartReplica("a");
  Create(*a, {});
  LimitQueue(*a, {std::nullopt, store::Rate{absl::Hours(1), 3}});
  Enqueue(*a, "t", 6);
  EXPECT_TRUE(Eventually(10, [&] { return Ready() == "3"; })) << Ready();
  EXPECT_EQ(Recall(*a, 100), 0);
  EXPECT_EQ(Ready(), "3");
}

// What a job has passed before it keeps, and what has been claimed keeps its turn.
TEST_F(RecallTest, WhatWasPassedBeforeIsKept) {
  auto a = StartReplica("a");
  Create(*a, {});
  ASSERT_TRUE(store_->SetLimit(Id(), store::LimitScope::kKey, "key", {1, std::nullopt}).ok());
  store::NewJob keyed = Job("t"), grouped = Job("t");
  keyed.concurrency_keys = {"key"};
  grouped.group = "g";
  ASSERT_TRUE(a->Enqueue("q", {keyed, keyed, grouped, grouped}).ok());
  ASSERT_TRUE(Eventually(10, [&] { return Ready() == "2"; })) << Ready();
  Enqueue(*a, "t", 3, 5);
  auto claimed = a->Claim("q", 1, absl::Seconds(10));
  ASSERT_TRUE(claimed.ok() && claimed->jobs.size() == 1) << claimed.status();
  // By the store alone: nobody looks.
  ASSERT_TRUE(store_->UpdateQueue("q", Fair(), {"fair_tenants"}).ok());
  auto step = a->store->Recall(Id(), 100);
  ASSERT_TRUE(step.ok() && !step->more) << step.status();
  EXPECT_EQ(step->recalled, 4);
  // The second of the key and of the group wait where they did.
  EXPECT_EQ(Sql("select string_agg(gate || ':' || state, ' ' order by id) from tenure.job where priority = 0"),
            "6:2 2:2 6:2 1:2");
  ASSERT_TRUE(a->Release({{claimed->jobs[0].token, absl::ZeroDuration()}}).ok());
  step = a->store->Recall(Id(), 100);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->recalled, 0) << "the one that was released";
  EXPECT_TRUE(Eventually(10, [&] {
    a->engine->NoteGates({{Id(), {"q"}}});
    return Ready() == "5";
  })) << Ready();
  Work(*a, 7, 2);
  EXPECT_EQ(Counts(), "0 0 0");
  // Turned on once more, which changes nothing: nobody loses the turn that it has.
  Enqueue(*a, "t", 3);
  ASSERT_TRUE(Eventually(10, [&] { return Ready() == "3"; })) << Ready();
  Update(*a, Fair(), {"fair_tenants"});
  EXPECT_EQ(Recall(*a, 100), 0);
}

// An application enqueued before the change, and commits after it.
TEST_F(RecallTest, WhoDidNotKnowIsFoundAndThenItIsOver) {
  auto a = StartReplica("a");
  Create(*a, {});
  PGconn* pg = PQconnectdb(database_.direct_url().c_str());
  PQclear(PQexec(pg, "begin"));
  PQclear(PQexec(pg, "select tenure.enqueue('q', 'k')"));
  Update(*a, Fair(), {"fair_tenants"});
  EXPECT_EQ(Recall(*a, 100), 0);
  // As if it had been long since.
  const std::string age = "update tenure.admission_recall set since = since - interval '1 minute'";
  Sql(age);
  EXPECT_EQ(Recall(*a, 100), 0);
  PQclear(PQexec(pg, "commit"));
  PQfinish(pg);
  EXPECT_EQ(Ready(), "1");
  EXPECT_EQ(Recall(*a, 100), 1);
  EXPECT_TRUE(Eventually(10, [&] { return Ready() == "1"; })) << "it gets its turn";
  EXPECT_EQ(Recall(*a, 100), 0);
  EXPECT_TRUE(Eventually(10, [&] {
    Recall(*a, 100);
    return store_->Recalls(10)->empty();
  })) << "nobody is at work any more who might not know";
  EXPECT_EQ(Sql("select count(*) from tenure.job where state = 3 and gate = 0"), "1");
}

// What is sent back may be ready again at once, with another rank. A claim whose snapshot is older would take that rank
// for how far it has read, and leave behind what lies between: so a step is not seen before such claims have ended.
TEST_F(RecallTest, AStepWaitsForTheClaimsThatAreUnderWay) {
  auto a = StartReplica("a");
  Create(*a, {});
  Enqueue(*a, "t", 10);
  PGconn* pg = PQconnectdb(database_.direct_url().c_str());
  PQclear(PQexec(pg, "begin"));
  PQclear(PQexec(pg, absl::StrCat("select pg_advisory_xact_lock_shared(2120, ", Id(), ")").c_str()));  // As claims do.
  ASSERT_TRUE(store_->UpdateQueue("q", Fair(), {"fair_tenants"}).ok());
  std::thread step([&] { EXPECT_EQ(Recall(*a, 100), 10); });
  EXPECT_TRUE(Eventually(10, [&] {
    return Sql("select count(*) from pg_locks where locktype = 'advisory' and classid = 2120 and not granted") == "1";
  }));
  EXPECT_EQ(Ready(), "10");
  PQclear(PQexec(pg, "commit"));
  PQfinish(pg);
  step.join();
  EXPECT_EQ(Sql("select count(*) from tenure.job where gate is null"), "0");
}

TEST_F(RecallTest, TurnedOffAgainEverybodyIsLetGo) {
  auto a = StartReplica("a");
  Create(*a, {});
  Enqueue(*a, "t", 1000);
  Update(*a, Fair(), {"fair_tenants"});
  auto step = a->store->Recall(Id(), 300);
  ASSERT_TRUE(step.ok() && step->more) << step.status();
  EXPECT_EQ(step->recalled, 300);
  Update(*a, store::QueueSettings(), {"fair_tenants"});
  EXPECT_EQ(Recall(*a, 300), 0);
  EXPECT_TRUE(store_->Recalls(10)->empty());
  EXPECT_TRUE(Eventually(20, [&] { return Ready() == "1000"; })) << Ready();
}

// An application enqueued for a gate that is gone when it commits.
TEST_F(RecallTest, WhoIsLeftAtAGateThatIsGoneIsLetGo) {
  auto a = StartReplica("a");
  Create(*a, Fair());
  PGconn* pg = PQconnectdb(database_.direct_url().c_str());
  PQclear(PQexec(pg, "begin"));
  PQclear(PQexec(pg, "select tenure.enqueue('q', 'k')"));
  Enqueue(*a, "t", 100);
  Update(*a, store::QueueSettings(), {"fair_tenants"});
  ASSERT_TRUE(Eventually(10, [&] { return Ready() == "100"; })) << Ready();
  // The replica has looked, and knows that the queue has no gate: it does not look when it hears of the job.
  PQclear(PQexec(pg, "commit"));
  PQfinish(pg);
  EXPECT_EQ(AtGate(), "1");
  EXPECT_TRUE(Eventually(10, [&] {
    auto page = store_->BlockedNames({}, 100);
    EXPECT_TRUE(page.ok()) << page.status();
    if (page.ok()) a->engine->NoteGates(page->names);
    return Ready() == "101";
  })) << "by the sweep";
}

// Several recall at once while others claim, release and complete: every job is done, by claims that read on from where
// they are.
TEST_F(RecallTest, NothingIsLostWhileEverybodyIsAtWork) {
  auto a = StartReplica("a"), b = StartReplica("b");
  Create(*a, {});
  constexpr int kJobs = 6000;
  for (int i = 0; i < kJobs / 600; ++i) {
    for (const char* tenant : {"x", "y", "z"}) Enqueue(*a, tenant, 200, i % 2 == 0 ? 0 : 5);
  }
  std::atomic<int> done{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (Replica* replica : {a.get(), b.get()}) {
    for (int each : {5, 60}) {
      threads.emplace_back([&, replica, each] {
        for (int round = 0; done < kJobs && !over; ++round) {
          auto claimed = replica->Claim("q", each, absl::Milliseconds(200));
          ASSERT_TRUE(claimed.ok()) << claimed.status();
          if (round % 5 == 0) {
            std::vector<store::GiveBackItem> back;
            for (const store::ClaimedJob& job : claimed->jobs) back.push_back({job.token, absl::ZeroDuration()});
            ASSERT_TRUE(replica->Release(std::move(back)).ok());
          } else {
            Complete(*replica, claimed->jobs);
            done += static_cast<int>(claimed->jobs.size());
          }
        }
      });
    }
    threads.emplace_back([&, replica] {
      while (done < kJobs && !over) {
        auto step = replica->store->Recall(Id(), 150);
        ASSERT_TRUE(step.ok()) << step.status();
        replica->engine->NoteGates({{Id(), {"q"}}});
      }
    });
  }
  // On and off and on, until it is through.
  threads.emplace_back([&] {
    for (bool fair = true; done < kJobs * 3 / 4 && !over; fair = !fair) {
      store::QueueSettings settings;
      settings.fair_tenants = fair;
      Update(*a, settings, {"fair_tenants"});
      const int from = done;
      Eventually(20, [&] { return done > from + 400 || done >= kJobs || over; });
    }
    Update(*a, Fair(), {"fair_tenants"});
  });
  EXPECT_TRUE(Eventually(60, [&] { return done >= kJobs; }))
      << done << " done, ready " << Ready() << ", at the gate " << AtGate();
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, kJobs);
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "0");
  EXPECT_EQ(Counts(), "0 0 0");
}

}  // namespace
}  // namespace tenure::engine
