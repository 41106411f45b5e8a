// Background workers in whole daemons that are killed, stopped, cut off from their database and broken: who leads is
// audited from a ledger that the database keeps of every term, not from how it stands at the end. Layer: tests.
#include <libpq-fe.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <stdexcept>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/background/registry.h"
#include "server/background/supervisor.h"
#include "tenure/client.h"
#include "tests/support/daemon_fixture.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/lease_ledger.h"
#include "tests/support/manual_clock.h"
#include "tests/support/store_fixture.h"

namespace tenure::testing {
namespace {

using namespace std::chrono_literals;

// A lease is 6 s. Then a replica looks within half a second, and once more where shards change hands among those that
// are left. The rest is the machine's, which may be busy with other things, and PostgreSQL's after a crash.
constexpr double kTakeover = 6 + 2 * 0.5 + 8;

class LeadershipTest : public DaemonFixture {
 protected:
  LeadershipTest() {
    KeepLedger([this](const std::string& sql) { return Sql(sql); });
  }
  ~LeadershipTest() override {
    const auto sql = [this](const std::string& text) { return Sql(text); };
    EXPECT_EQ(AuditLeaders(sql), "");
    EXPECT_EQ(AuditShards(sql), "");
    for (const background::WorkerEntry& entry : background::AllWorkers()) {
      if (entry.leadership == background::Leadership::kOwnLeases) {
        EXPECT_EQ(AuditTiling(sql, std::string(entry.name)), "");
      }
    }
  }
  // Everything is led by, or shared by, replicas other than `gone` (0: by any).
  bool AllLed(int32_t gone = 0) {
    size_t led = 0;
    for (const background::WorkerEntry& entry : background::AllWorkers()) {
      led += entry.leadership == background::Leadership::kOuterLease ? 1 : 0;
    }
    return TrySql(
               absl::StrCat("select (select count(*) from tenure.leader where expires_at > now() and replica_id <> ",
                            gone, ") = ", led,
                            " and (select coalesce(sum(last_shard - first_shard + 1), 0) from tenure.shard_lease where "
                            "expires_at > now() and "
                            "replica_id <> ",
                            gone, ") = ", (background::AllWorkers().size() - led) * store::kShards)) == "t";
  }
  int32_t Replica(const DaemonProcess& daemon) {
    int32_t id = 0;
    EXPECT_TRUE(absl::SimpleAtoi(Sql(absl::StrCat("select id from tenure.replica where name like '%-", daemon.pid(),
                                                  "-%' order by id desc limit 1")),
                                 &id));
    return id;
  }
  void ScheduleEverySecond(const std::string& address) {
    client::Client client = Connect(address);
    client::ScheduleSpec spec;
    spec.interval = 1s;
    spec.job.queue = "q";
    spec.job.kind = "k";
    ASSERT_EQ(client.CreateSchedule("s", spec).status(), absl::OkStatus());
  }
  // As Sql, but empty while the database recovers and takes no connections.
  std::string TrySql(const std::string& sql) {
    PGconn* pg = PQconnectdb(database_.url().c_str());
    PGresult* result = PQstatus(pg) == CONNECTION_OK ? PQexec(pg, sql.c_str()) : nullptr;
    const bool answered = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1;
    std::string answer = answered ? PQgetvalue(result, 0, 0) : "";
    PQclear(result);
    PQfinish(pg);
    return answer;
  }
  int Slots() { return std::stoi(Sql("select count(*) from tenure.schedule_run")); }
  void ExpectNoSlotDoubledOrLost() {
    EXPECT_EQ(Sql("select count(*) - 1 = extract(epoch from max(slot) - min(slot)) from tenure.schedule_run"), "t")
        << Sql("select string_agg(slot::text, ' ' order by slot) from tenure.schedule_run");
    EXPECT_EQ(Sql("select count(*) = count(distinct headers ->> 'tenure-slot') and count(*) = (select count(*) from "
                  "tenure.schedule_run) from tenure.job"),
              "t");
  }
};

// One after the other the replica that leads the scheduler is killed, and stopped and continued, while two others stand
// by; within a lease each time everything is led again, and cron loses and doubles nothing.
TEST_F(LeadershipTest, ThreeReplicasThroughAKillAndAStop) {
  std::vector<std::unique_ptr<DaemonProcess>> daemons;
  for (int i = 0; i < 3; ++i) daemons.push_back(StartProcess());
  ASSERT_TRUE(Eventually(30, [&] { return AllLed(); }));
  ScheduleEverySecond(daemons[0]->grpc_address());
  ASSERT_TRUE(Eventually(30, [&] { return Slots() >= 2; }));

  const auto leading = [&]() -> DaemonProcess& {
    const std::string holder = Sql("select holder from tenure.leader where worker = 'scheduler'");
    for (auto& daemon : daemons) {
      if (holder.find(absl::StrCat("-", daemon->pid(), "-")) != std::string::npos) return *daemon;
    }
    ADD_FAILURE() << "nobody leads the scheduler: " << holder;
    return *daemons[0];
  };
  DaemonProcess& killed = leading();
  const int32_t first = Replica(killed);
  killed.Kill();
  const Clock::TimePoint killed_at = Clock::Real().Now();
  ASSERT_TRUE(Eventually(30, [&] { return AllLed(first); }));
  EXPECT_LT(std::chrono::duration<double>(Clock::Real().Now() - killed_at).count(), kTakeover);

  DaemonProcess& stopped = leading();
  const int32_t second = Replica(stopped);
  stopped.Signal(SIGSTOP);
  const Clock::TimePoint stopped_at = Clock::Real().Now();
  ASSERT_TRUE(Eventually(30, [&] { return AllLed(second); }));
  EXPECT_LT(std::chrono::duration<double>(Clock::Real().Now() - stopped_at).count(), kTakeover);
  const int slots = Slots();
  stopped.Signal(SIGCONT);
  ASSERT_TRUE(Eventually(30, [&] { return Slots() >= slots + 3; }));
  ExpectNoSlotDoubledOrLost();
}

// PostgreSQL crashes under two replicas, and recovers: each connection breaks in the middle of whatever it did.
TEST_F(LeadershipTest, DirectOnlyTwoReplicasThroughACrashOfTheDatabase) {
  const auto first = StartProcess(), second = StartProcess();
  ASSERT_TRUE(Eventually(30, [&] { return AllLed(); }));
  ScheduleEverySecond(first->grpc_address());
  ASSERT_TRUE(Eventually(30, [&] { return Slots() >= 2; }));
  for (int crash = 0; crash < 2; ++crash) {
    pid_t backend = 0;
    ASSERT_TRUE(
        absl::SimpleAtoi(Sql("select pid from pg_stat_activity where application_name = 'tenured' and datname = "
                             "current_database() limit 1"),
                         &backend));
    // The postmaster ends all other sessions then, and replays its log.
    ASSERT_EQ(kill(backend, SIGKILL), 0);
    const Clock::TimePoint crashed = Clock::Real().Now();
    ASSERT_TRUE(Eventually(30, [&] {
      return TrySql(absl::StrCat("select count(*) from pg_stat_activity where pid = ", backend)) == "0";
    }));
    ASSERT_TRUE(Eventually(30, [&] { return AllLed(); }));
    EXPECT_LT(std::chrono::duration<double>(Clock::Real().Now() - crashed).count(), kTakeover);
    const int slots = Slots();
    ASSERT_TRUE(Eventually(30, [&] { return Slots() >= slots + 3; }));
  }
  ExpectNoSlotDoubledOrLost();
}

// One that is told to stop hands over at once: nobody waits for a lease to run out.
TEST_F(LeadershipTest, AReplicaThatDrainsHandsOverFirst) {
  const auto first = StartProcess();
  ASSERT_TRUE(Eventually(30, [&] { return AllLed(); }));
  const auto second = StartProcess();
  const int32_t leaving = Replica(*first);
  first->Signal(SIGTERM);
  const Clock::TimePoint told = Clock::Real().Now();
  ASSERT_TRUE(Eventually(30, [&] { return AllLed(leaving); }));
  EXPECT_LT(std::chrono::duration<double>(Clock::Real().Now() - told).count(), 4) << "long before a lease is over";
  EXPECT_EQ(first->Wait(), 0);
}

// A worker that throws as soon as it runs, a hundred times a second, which is far more often than the pauses between
// restarts allow: RPCs and the other workers of the same process do not notice.
TEST_F(LeadershipTest, AWorkerThatThrowsForEverSlowsNeitherRpcsNorSiblings) {
  TestDaemonOptions options;
  options.database_url = database_.url();
  TestDaemon daemon(options);
  client::Client client = Connect(daemon.grpc_address());
  const auto p99 = [&] {
    std::vector<double> seconds;
    for (int call = 0; call < 400; ++call) {
      const auto began = std::chrono::steady_clock::now();
      client::JobSpec spec{.queue = "q", .kind = "k"};
      EXPECT_EQ(client.Enqueue(spec).status(), absl::OkStatus());
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() * 99 / 100];
  };
  const auto runs = [&](const std::string& worker) {
    for (const auto& state : daemon->supervisor().States()) {
      if (state.name == worker) return state.runs;
    }
    return int64_t{-1};
  };
  ASSERT_TRUE(Eventually(30, [&] { return runs("stats") > 1; }));
  p99();  // Warm.
  const double without = p99();

  ManualClock clock;
  Metrics metrics;
  background::Dependencies dependencies;
  dependencies.store = &daemon->store();
  dependencies.clock = &clock;
  class Thrower : public background::Worker {
   public:
    absl::Status Run(background::RunContext&) override { throw std::runtime_error("for ever"); }
  };
  const background::WorkerEntry entry{
      .name = "thrower",
      .help = "",
      .tunables = {},
      .make = [](const background::Dependencies&) -> std::unique_ptr<background::Worker> {
        return std::make_unique<Thrower>();
      }};
  background::Supervisor broken({entry}, dependencies, metrics, [&] { return daemon->engine().replica_id(); });
  broken.Start();
  const int64_t stats = runs("stats"), reaper = runs("reaper");
  std::jthread time([&](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any tick;
    std::unique_lock<std::mutex> lock(mutex);
    while (!stop.stop_requested()) {
      tick.wait_for(lock, stop, 10ms, [] { return false; });
      clock.Advance(absl::Minutes(2));
    }
  });
  ASSERT_TRUE(Eventually(30, [&] { return broken.States()[0].panics > 20; }));
  const double with = p99();
  ASSERT_TRUE(Eventually(30, [&] { return runs("stats") >= stats + 3 && runs("reaper") >= reaper + 3; }));
  time.request_stop();
  time.join();
  broken.RequestStop();
  RecordProperty("p99_without_ms", absl::StrCat(without * 1000));
  RecordProperty("p99_with_ms", absl::StrCat(with * 1000));
  EXPECT_LT(with, std::max(3 * without, 0.05))
      << "p99 without: " << without * 1000 << " ms, with: " << with * 1000 << " ms";
  for (const auto& state : daemon->supervisor().States()) {
    EXPECT_EQ(state.restarts, 0) << state.name;
    EXPECT_EQ(state.panics, 0) << state.name;
  }
  EXPECT_EQ(HttpGet(daemon.http_port(), "/readyz"), 200);
}

TEST_F(LeadershipTest, ReadinessListsEveryWorkerAndWarnsOfThoseThatNobodyLeads) {
  TestDaemonOptions options;
  options.database_url = database_.url();
  options.settings = {{"background", "stats,reaper"}};
  TestDaemon daemon(options);
  std::string body;
  EXPECT_TRUE(Eventually(30, [&] {
    return HttpGet(daemon.http_port(), "/readyz?verbose", &body) == 200 &&
           body.find("warning background-promoter: no replica leads") != std::string::npos &&
           body.find("ok background-reaper: led by") != std::string::npos;
  })) << body;
  EXPECT_THAT(body, ::testing::HasSubstr("ok background-stats: led by "));
  EXPECT_THAT(body, ::testing::HasSubstr("warning background-scheduler: no replica leads"));
  EXPECT_THAT(body, ::testing::HasSubstr("ok background-retention: nobody leads it"));
  for (const background::WorkerEntry& entry : background::AllWorkers()) {
    EXPECT_THAT(body, ::testing::HasSubstr(absl::StrCat(" background-", std::string(entry.name))));
  }
}

}  // namespace
}  // namespace tenure::testing
