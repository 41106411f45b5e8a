// The database goes away and comes back: behind a gate that is cut (the server went down) or stalled (the cable was
// pulled, the server stands still). Healthy jobs burn no crash and run once, settles are repeated until they are
// answered, the engine needs nobody.
#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/background/recovery.h"
#include "server/base/status.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/gate.h"

namespace tenure::engine {
namespace {

using store::ClaimedJob;
using store::LeaseToken;
using testing::Eventually;
using testing::Gate;
using testing::In;
using testing::Replica;

class OutageTest : public testing::ReplicaTest {
 protected:
  OutageTest() : gate_(database_.url()) { queue_ = store_->EnsureQueue("q", true)->id; }

  std::unique_ptr<store::postgres::PostgresStore> OpenGated() {
    store::postgres::PostgresOptions options;
    options.url = gate_.url();
    options.connections = 6;
    return store::postgres::PostgresStore::Open(options, metrics_);
  }
  std::unique_ptr<Replica> StartGated(const std::string& name, absl::Duration replica_lease = absl::Seconds(10)) {
    Options options;
    options.replica_name = name;
    options.version = "test";
    options.replica_lease = replica_lease;
    options.heartbeat_interval = std::min(absl::Seconds(3), replica_lease / 4);
    auto replica = std::make_unique<Replica>(OpenGated(), options);
    replica->engine->Start();
    return replica;
  }

  void Enqueue(int n) {
    const std::vector<store::NewJob> specs(static_cast<size_t>(n), store::NewJob{.kind = "k", .payload = {"{}", ""}});
    ASSERT_TRUE(store_->Enqueue(queue_, specs).ok());
  }
  static std::vector<LeaseToken> ClaimAll(Replica& replica, size_t n, absl::Duration lease) {
    std::vector<LeaseToken> tokens;
    while (tokens.size() < n) {
      absl::StatusOr<ClaimAnswer> claimed;
      // Just after an outage a claim may be told of it yet.
      Eventually(20, [&] {
        claimed = replica.Claim("q", static_cast<int>(n), absl::Seconds(10), lease);
        return !absl::IsUnavailable(claimed.status());
      });
      EXPECT_TRUE(claimed.ok()) << claimed.status();
      if (!claimed.ok() || claimed->jobs.empty()) break;
      for (const ClaimedJob& job : claimed->jobs) tokens.push_back(job.token);
    }
    return tokens;
  }
  void Pass(double seconds) { Sql(absl::StrCat("select pg_sleep(", seconds, ")")); }

  // Extends all, again and again until it is answered: what a worker pool does.
  static absl::Status ExtendAll(Replica& replica, const std::vector<LeaseToken>& tokens) {
    absl::Status last = absl::UnknownError("never tried");
    Eventually(20, [&] {
      std::vector<store::ExtendItem> items;
      for (const LeaseToken& token : tokens) items.push_back({token, absl::Minutes(5), std::nullopt});
      auto answers = replica.Extend(std::move(items), 2);
      last = answers.status();
      for (size_t i = 0; answers.ok() && i < answers->size() && last.ok(); ++i) last = (*answers)[i].status;
      return !absl::IsUnavailable(last) && !absl::IsDeadlineExceeded(last);
    });
    return last;
  }
  static absl::Status CompleteAll(Replica& replica, const std::vector<LeaseToken>& tokens) {
    absl::Status last = absl::UnknownError("never tried");
    Eventually(20, [&] {
      std::vector<CompleteItem> items;
      for (const LeaseToken& token : tokens) items.push_back({token, std::nullopt, {}});
      auto answers = replica.Complete(std::move(items), 2);
      last = answers.status();
      for (size_t i = 0; answers.ok() && i < answers->size() && last.ok(); ++i) last = (*answers)[i].status;
      return !absl::IsUnavailable(last) && !absl::IsDeadlineExceeded(last);
    });
    return last;
  }

  // CASES 44. The workers are well all the time; they only cannot reach the database, for longer than their leases are.
  // Another worker polls throughout, and must not get what they hold.
  void AwayForLongerThanALease(bool stalled, Replica& replica, absl::Duration lease, double away) {
    constexpr size_t kJobs = 200;
    Enqueue(kJobs);
    const std::vector<LeaseToken> tokens = ClaimAll(replica, kJobs, lease);
    ASSERT_EQ(tokens.size(), kJobs);
    std::atomic<bool> polling{true};
    std::atomic<int> stolen{0};
    std::thread other([&] {
      while (polling) {
        auto claimed = replica.Claim("q", 50, absl::Milliseconds(200), absl::Minutes(5), "other");
        if (claimed.ok()) stolen += static_cast<int>(claimed->jobs.size());
      }
    });
    stalled ? gate_.Stall() : gate_.Cut();
    EXPECT_TRUE(Eventually(20, [&] { return !replica.engine->health().database_ok || stalled; }));
    Pass(away);
    gate_.Open();
    const absl::Status extended = ExtendAll(replica, tokens);
    EXPECT_TRUE(extended.ok()) << extended;
    // Long enough for a lease that was ended to have been given to the other.
    Pass(1);
    EXPECT_EQ(Sql("select count(*) from tenure.job where crashes > 0 or attempt > 1 or state <> 4"), "0");
    const absl::Status completed = CompleteAll(replica, tokens);
    EXPECT_TRUE(completed.ok()) << completed;
    polling = false;
    other.join();
    EXPECT_EQ(stolen, 0);
    EXPECT_EQ(Sql("select count(*) from tenure.history where crashes = 0 and attempt = 1"), absl::StrCat(kJobs));
  }

  Gate gate_;
  int32_t queue_ = 0;
};

TEST_F(OutageTest, ADatabaseThatIsDownForLongerThanALeaseCostsNoHealthyJobAnything) {
  auto replica = StartGated("r");
  ASSERT_TRUE(replica->AwaitHealthy());
  AwayForLongerThanALease(false, *replica, absl::Seconds(5), 7);
}

// Statements that were under way, or were sent into the silence, run when the gate opens: none of them may end a lease.
TEST_F(OutageTest, ADatabaseThatStandsStillForLongerThanALeaseCostsNoHealthyJobAnything) {
  auto replica = StartGated("r");
  ASSERT_TRUE(replica->AwaitHealthy());
  AwayForLongerThanALease(true, *replica, absl::Seconds(4), 6);
}

// The replica's own lease runs out as well, and the reaper is the first to find the database again.
TEST_F(OutageTest, TheReaperDoesNotTakeReplicasForVanishedThatWereCutOffWithIt) {
  for (const bool stalled : {false, true}) {
    SCOPED_TRACE(stalled ? "stalled" : "cut");
    Sql("truncate tenure.job, tenure.history");
    auto replica = StartGated(stalled ? "stalled" : "cut", absl::Seconds(2));
    ASSERT_TRUE(replica->AwaitHealthy());
    const std::string worker = stalled ? "reaper-2" : "reaper";
    auto reaper_store = OpenGated();
    const store::ShardFence fence =
        testing::HoldShards(*reaper_store, worker, replica->engine->replica_id(), absl::Hours(1));
    std::atomic<bool> reaping{true};
    std::atomic<int> taken{0};
    std::thread reaper([&] {
      while (reaping) {
        auto recovered = background::RecoverVanished(*reaper_store, fence, 1000);
        if (recovered.ok()) taken += recovered->recovered + recovered->discarded;
      }
    });
    AwayForLongerThanALease(stalled, *replica, absl::Seconds(4), 6);
    reaping = false;
    reaper.join();
    EXPECT_EQ(taken, 0);
  }
}

// One that has died meanwhile is found by its lease all the same, and burns nothing either.
TEST_F(OutageTest, WhoseWorkerDiedInTheOutageIsRecoveredSoonAfterIt) {
  auto replica = StartGated("r");
  ASSERT_TRUE(replica->AwaitHealthy());
  Enqueue(20);
  ASSERT_EQ(ClaimAll(*replica, 20, absl::Seconds(3)).size(), 20u);
  gate_.Cut();
  EXPECT_TRUE(Eventually(20, [&] { return !replica->engine->health().database_ok; }));
  Pass(4);
  gate_.Open();
  EXPECT_EQ(ClaimAll(*replica, 20, absl::Minutes(5)).size(), 20u);
  EXPECT_EQ(Sql("select count(*) from tenure.job where crashes = 0 and attempt = 2"), "20");
}

// A database that comes and goes: what ran out in the first outage, and waits for its worker, is not ended by the
// second.
TEST_F(OutageTest, AnOutageThatFollowsUponAnotherIsTheSameOne) {
  const int32_t granter = *store_->RegisterReplica("granter", "test");
  Enqueue(1);
  store::ClaimBatch batch;
  batch.queue = queue_;
  batch.replica = granter;
  batch.ranges = {{0, store::kLowestKey, store::kHighestKey}};
  batch.workers = {"w"};
  batch.slots = {store::ClaimSlot{0, -1, absl::Minutes(1)}};
  const ClaimedJob job = store_->Claim(batch)->jobs.at(0);
  // It ran out 10 s ago, in an outage of 12 s that ended 2 s ago; another of a second has just ended.
  Sql("update tenure.job set lease_until = now() - interval '10 s'");
  Sql("insert into tenure.outage (began_at, ended_at) values (now() - interval '14 s', now() - interval '2 s')");
  ASSERT_TRUE(store_->RecordOutage(absl::Seconds(1)).ok());
  const std::vector<store::LeaseRef> refs{{queue_, job.job.id.seq, job.token.number}};
  std::vector<store::ReadyRange> ready;
  auto reaped = store_->Reap(queue_, refs, &ready);
  ASSERT_TRUE(reaped.ok()) << reaped.status();
  ASSERT_TRUE((*reaped)[0].remaining);
  EXPECT_GT(*(*reaped)[0].remaining, absl::Seconds(10));
  EXPECT_EQ(Sql("select count(*) from tenure.outage"), "1");
  // One long after is another.
  Sql("update tenure.outage set ended_at = now() - interval '1 min'");
  ASSERT_TRUE(store_->RecordOutage(absl::Seconds(1)).ok());
  EXPECT_EQ(Sql("select count(*) from tenure.outage"), "2");
}

// CASES 18 and 29: calls during the outage answer UNAVAILABLE and say why, polls wait on, and afterwards everything
// works again without anybody's help.
TEST_F(OutageTest, SettlesAreRefusedAsUnavailableAndSucceedOnRetryAndTheEngineRecoversByItself) {
  auto replica = StartGated("r");
  ASSERT_TRUE(replica->AwaitHealthy());
  Enqueue(4);
  const std::vector<LeaseToken> tokens = ClaimAll(*replica, 4, absl::Minutes(5));
  ASSERT_EQ(tokens.size(), 4u);
  auto parked = std::async(std::launch::async, [&] { return replica->Claim("q", 1, absl::Seconds(30)); });
  // Until it has looked, found nothing, and stands; what it then hears of its own enqueue's event it has read before.
  EXPECT_TRUE(Eventually(20, [&] { return replica->metrics.polls_parked.Add({{"kind", "claim"}}).Value() == 1; }));
  Pass(0.3);
  gate_.Cut();
  EXPECT_TRUE(Eventually(20, [&] { return !replica->engine->health().database_ok; }));
  EXPECT_FALSE(replica->engine->health().database_error.empty());
  const auto completed = replica->Complete({{tokens[0], std::nullopt, {}}});
  ASSERT_TRUE(completed.ok()) << completed.status();
  EXPECT_TRUE(absl::IsUnavailable((*completed)[0].status)) << (*completed)[0].status;
  EXPECT_EQ(DetailsOf((*completed)[0].status).reason, "DATABASE_UNAVAILABLE");
  const auto failed = replica->Fail({{tokens[1], {"boom"}, false, absl::Hours(1)}});
  EXPECT_TRUE(absl::IsUnavailable((*failed)[0].status)) << (*failed)[0].status;
  const auto enqueued = replica->Enqueue("q", {store::NewJob{.kind = "k"}});
  EXPECT_TRUE(absl::IsUnavailable((*enqueued)[0].status)) << (*enqueued)[0].status;
  gate_.Open();
  EXPECT_TRUE(replica->AwaitHealthy());
  EXPECT_TRUE(CompleteAll(*replica, {tokens[0]}).ok());
  EXPECT_TRUE((*replica->Fail({{tokens[1], {"boom"}, false, absl::Hours(1)}}))[0].status.ok());
  EXPECT_TRUE((*replica->Release({{tokens[2], absl::Hours(1)}}))[0].status.ok());
  EXPECT_TRUE((*replica->Snooze({{tokens[3], absl::Hours(1)}}))[0].status.ok());
  // The poll that stood there all the time hears of the next job.
  EXPECT_TRUE((*replica->Enqueue("q", {store::NewJob{.kind = "k"}}))[0].status.ok());
  const auto served = parked.get();
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_EQ(served->jobs.size(), 1u);
}

// CASES 29: the daemon starts before its database.
TEST_F(OutageTest, AnEngineThatStartsBeforeItsDatabaseWaitsForIt) {
  gate_.Cut();
  auto replica = StartGated("r");
  const auto refused = replica->Claim("q", 1, absl::ZeroDuration());
  EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
  EXPECT_FALSE(replica->engine->health().database_ok);
  Enqueue(1);
  gate_.Open();
  EXPECT_TRUE(replica->AwaitHealthy());
  EXPECT_EQ(ClaimAll(*replica, 1, absl::Minutes(1)).size(), 1u);
}

// Connections break at any moment, also between a commit and its acknowledgement. With keys and tokens repeated until
// they are answered, each job is there once, and completed once; a claim whose answer was lost comes back with its
// lease.
TEST_F(OutageTest, ConnectionsThatBreakAtAnyMomentLoseAndDoubleNothing) {
  auto replica = StartGated("r");
  ASSERT_TRUE(replica->AwaitHealthy());
  std::atomic<bool> writing{true};
  std::atomic<int> accepted{0}, completed{0};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    std::mt19937 random(1);
    while (writing) {
      Pass(0.05 + 0.001 * static_cast<double>(random() % 200));
      random() % 4 == 0 ? gate_.Stall() : gate_.Cut();
      Pass(0.001 * static_cast<double>(random() % 150));
      gate_.Open();
    }
  });
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int n = 0; writing; ++n) {
        store::NewJob spec{.kind = "k"};
        spec.idempotency_key = absl::StrCat(t, "/", n);
        EXPECT_TRUE(Eventually(30, [&] {
          auto outcomes = replica->Enqueue("q", {spec});
          const absl::Status status = outcomes.ok() ? (*outcomes)[0].status : outcomes.status();
          EXPECT_TRUE(status.ok() || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) << status;
          return status.ok();
        }));
        ++accepted;
      }
    });
  }
  std::atomic<bool> working{true};
  std::set<std::string> tokens;
  std::mutex mu;
  std::vector<std::thread> workers;
  for (int t = 0; t < 3; ++t) {
    workers.emplace_back([&] {
      while (working) {
        auto claimed = replica->Claim("q", 5, absl::Milliseconds(500), absl::Seconds(3));
        if (!claimed.ok()) continue;
        for (const ClaimedJob& job : claimed->jobs) {
          {
            std::lock_guard<std::mutex> lock(mu);
            EXPECT_TRUE(tokens.insert(job.token.ToString()).second) << "won twice";
          }
          const absl::Status status = CompleteAll(*replica, {job.token});
          // On a machine that stands still for seconds the lease may be over; then another claim has the job.
          if (status.ok()) {
            ++completed;
          } else {
            EXPECT_EQ(DetailsOf(status).reason, "LEASE_LOST") << status;
          }
        }
      }
    });
  }
  Pass(6);
  writing = false;
  for (std::thread& thread : threads) thread.join();
  gate_.Open();
  EXPECT_TRUE(Eventually(40, [&] { return Sql("select count(*) from tenure.job") == "0"; }));
  working = false;
  for (std::thread& worker : workers) worker.join();
  EXPECT_GT(accepted, 20);
  EXPECT_EQ(completed, accepted);
  EXPECT_EQ(Sql("select count(*) from tenure.history"), absl::StrCat(accepted.load()));
  EXPECT_EQ(Sql("select count(distinct idempotency_key) from tenure.history"), absl::StrCat(accepted.load()));
}

}  // namespace
}  // namespace tenure::engine
