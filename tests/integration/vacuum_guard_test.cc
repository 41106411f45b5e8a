// The vacuum guard on a real PostgreSQL: what it sees of holders, tables and indexes, and what it does about bloat.
// Layer: tests.
#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/background/registry.h"
#include "server/background/supervisor.h"
#include "server/base/status.h"
#include "server/store/postgres/connection.h"
#include "tests/support/daemon.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/store_fixture.h"
#include "tests/support/tenurectl.h"

namespace tenure::background {
namespace {

using store::postgres::Params;
using ::testing::AllOf;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StoreTest;

class VacuumGuardTest : public StoreTest {
 protected:
  VacuumGuardTest() {
    replica_ = store_->RegisterReplica("r", "test").value_or(0);
    EXPECT_EQ(store_->Heartbeat(replica_, false, absl::Minutes(5)), absl::OkStatus());
  }

  // idempotency_expires grows to some megabytes, of which nothing is left.
  void Bloat() {
    Sql("insert into tenure.idempotency select 1, 0, 'key ' || n, n, 1, '', now() + n * interval '1 s' from "
        "generate_series(1, 100000) n");
    Sql("delete from tenure.idempotency");
    Sql("vacuum analyze tenure.idempotency");
  }
  int64_t Bytes(const std::string& index) {
    return std::stoll(Sql(absl::StrCat("select pg_relation_size('tenure.", index, "')")));
  }
  store::IndexSize Index(const std::string& name) {
    const auto info = store_->Inspect();
    EXPECT_EQ(info.status(), absl::OkStatus());
    for (const store::IndexSize& index : info->indexes) {
      if (index.name == name) return index;
    }
    ADD_FAILURE() << "no index " << name;
    return {};
  }
  std::unique_ptr<Supervisor> Start(const std::string& min_size = "1") {
    // Each supervisor has its own: they may not change while one runs.
    Tunables& tunables = tunables_.emplace_back(DefaultTunables());
    EXPECT_EQ(tunables.Set("vacuum-guard.interval", "200ms"), absl::OkStatus());
    EXPECT_EQ(tunables.Set("vacuum-guard.min_size", min_size), absl::OkStatus());
    EXPECT_EQ(tunables.Set("vacuum-guard.max_transaction_age", "1s"), absl::OkStatus());
    EXPECT_EQ(tunables.Set("vacuum-guard.lock_timeout", "300ms"), absl::OkStatus());
    const Dependencies dependencies{.store = store_.get(), .clock = &Clock::Real(), .tunables = &tunables};
    auto supervisor = std::make_unique<Supervisor>(
        *SelectWorkers("vacuum-guard"), dependencies, metrics_, [this] { return replica_; },
        SupervisorOptions{.lease = absl::Seconds(6), .acquire_interval = absl::Milliseconds(50)});
    supervisor->Start();
    return supervisor;
  }
  double Work(const char* what) { return metrics_.db_index_work.Add({{"what", what}}).Value(); }

  int32_t replica_ = 0;
  std::list<Tunables> tunables_;
};

TEST_F(VacuumGuardTest, HoldersOfVacuumAreNamedWithTheirAge) {
  auto other = store::postgres::Connection::Open(database_.url(), "report of the month", absl::Seconds(5)).value();
  store::postgres::Transaction tx(*other, {absl::Seconds(30)});
  ASSERT_TRUE(tx.Run("select count(*) from tenure.job", Params()).ok());
  auto info = store_->Inspect();
  ASSERT_EQ(info.status(), absl::OkStatus());
  ASSERT_FALSE(info->holders.empty());
  EXPECT_EQ(info->holders[0].kind, "transaction");
  EXPECT_GT(info->holders[0].pid, 0);
  EXPECT_TRUE(info->holders[0].query_start.has_value());
  EXPECT_EQ(info->holders[0].state, "idle in transaction");
  ASSERT_TRUE(info->oldest_transaction().has_value());
  EXPECT_GT(*info->oldest_transaction(), absl::ZeroDuration());
  bool jobs = false;
  for (const store::TableRows& table : info->tables) jobs = jobs || table.name == "job";
  EXPECT_TRUE(jobs);
}

TEST_F(VacuumGuardTest, DirectOnlyPreparedTransactionsAndSlotsAreHoldersToo) {
  Sql("begin; insert into tenure.outage (began_at, ended_at) values (now(), now()); prepare transaction 'forgotten'");
  auto info = store_->Inspect();
  ASSERT_EQ(info.status(), absl::OkStatus());
  const auto prepared = std::find_if(info->holders.begin(), info->holders.end(),
                                     [](const auto& holder) { return holder.kind == "prepared transaction"; });
  ASSERT_NE(prepared, info->holders.end());
  EXPECT_EQ(prepared->name, "forgotten");
  EXPECT_TRUE(prepared->age.has_value());
  Sql("rollback prepared 'forgotten'");
}

TEST_F(VacuumGuardTest, TheSurplusOfAnIndexIsSeenAndAFreshOneHasNone) {
  Sql("insert into tenure.idempotency select 1, 0, 'key ' || n, n, 1, '', now() + n * interval '1 s' from "
      "generate_series(1, 100000) n");
  Sql("vacuum analyze tenure.idempotency");
  Sql("reindex table tenure.idempotency");
  EXPECT_LT(Index("idempotency_expires").surplus(), 0.3);
  EXPECT_LT(Index("idempotency_pkey").surplus(), 0.4);
  Sql("delete from tenure.idempotency");
  Bloat();
  EXPECT_GT(Index("idempotency_expires").surplus(), 0.9);
  EXPECT_GT(Index("idempotency_expires").bytes, 1 << 20);
}

TEST_F(VacuumGuardTest, DirectOnlyABloatedIndexIsRebuiltWhileTheTableIsInUse) {
  Bloat();
  const int64_t before = Bytes("idempotency_expires");
  const int64_t other = Bytes("job_ready");
  std::atomic<bool> stop = false;
  std::atomic<int> written = 0;
  std::jthread writer([&] {
    while (!stop) {
      Sql(absl::StrCat("insert into tenure.idempotency values (2, 0, 'w", ++written, "', 1, 1, '', now())"));
    }
  });
  auto supervisor = Start();
  EXPECT_TRUE(Eventually(
      30, [&] { return Bytes("idempotency_expires") < before / 4 && Bytes("idempotency_pkey") < before / 4; }));
  stop = true;
  writer.join();
  supervisor.reset();
  EXPECT_GE(Work("rebuilt"), 2);
  EXPECT_GT(written, 0);
  EXPECT_EQ(Sql("select count(*) from tenure.idempotency"), absl::StrCat(written.load()));
  EXPECT_EQ(Sql("select bool_and(indisvalid) from pg_index where indrelid = 'tenure.idempotency'::regclass"), "t");
  EXPECT_EQ(Bytes("job_ready"), other) << "too small to bother";
}

TEST_F(VacuumGuardTest, DirectOnlyNothingIsRebuiltWhileATransactionIsOpen) {
  Bloat();
  const int64_t before = Bytes("idempotency_expires");
  auto other = store::postgres::Connection::Open(database_.url(), "other", absl::Seconds(5)).value();
  std::unique_ptr<Supervisor> supervisor;
  {
    store::postgres::Transaction tx(*other, {absl::Seconds(30)});
    ASSERT_TRUE(tx.Run("select count(*) from tenure.queue", Params()).ok());
    ASSERT_TRUE(Eventually(20, [&] { return store_->Inspect()->oldest_transaction() > absl::Seconds(1); }));
    supervisor = Start();
    ASSERT_TRUE(Eventually(20, [&] { return supervisor->States()[0].runs >= 4; }));
    EXPECT_EQ(Bytes("idempotency_expires"), before);
    EXPECT_EQ(Work("rebuilt") + Work("failed"), 0) << "it was not even tried";
  }
  EXPECT_TRUE(Eventually(30, [&] { return Bytes("idempotency_expires") < before / 4; }));
}

TEST_F(VacuumGuardTest, DirectOnlyALockThatIsNotHadIsGivenUpAndWhatIsLeftBehindIsDropped) {
  Bloat();
  const store::Fence fence = **store_->AcquireLeader("vacuum-guard", replica_, absl::Minutes(1));
  const store::VacuumStore::IndexWorkLimits limits{.lock = absl::Milliseconds(200), .total = absl::Seconds(20)};
  {
    // The rebuild can make its new index, and has then to wait for this transaction.
    auto other = store::postgres::Connection::Open(database_.url(), "other", absl::Seconds(5)).value();
    store::postgres::Transaction tx(*other, {absl::Seconds(30)});
    ASSERT_TRUE(tx.Run("insert into tenure.idempotency values (3, 0, 'x', 1, 1, '', now())", Params()).ok());
    const absl::Status refused = store_->RebuildIndex(fence, "idempotency_expires", limits, std::stop_token());
    EXPECT_EQ(DetailsOf(refused).reason, "DATABASE_TIMEOUT") << refused;
    EXPECT_EQ(Work("failed"), 1);
  }
  auto info = store_->Inspect();
  ASSERT_EQ(info.status(), absl::OkStatus());
  EXPECT_THAT(info->leftover_indexes, ::testing::ElementsAre("idempotency_expires_ccnew"));
  EXPECT_EQ(store_->DropLeftoverIndex(fence, "idempotency_expires_ccnew", limits, std::stop_token()), absl::OkStatus());
  EXPECT_THAT(store_->Inspect()->leftover_indexes, IsEmpty());
  EXPECT_EQ(store_->DropLeftoverIndex(fence, "idempotency_expires_ccnew", limits, std::stop_token()), absl::OkStatus())
      << "gone is gone";
  EXPECT_EQ(store_->DropLeftoverIndex(fence, "idempotency_expires", limits, std::stop_token()), absl::OkStatus());
  EXPECT_GT(Bytes("idempotency_expires"), 0) << "one that is in use is never dropped";
}

TEST_F(VacuumGuardTest, DirectOnlyWhatARebuildLeftBehindIsDropped) {
  Sql("create index idempotency_expires_ccnew on tenure.idempotency (expires_at)");
  Sql("update pg_index set indisvalid = false where indexrelid = 'tenure.idempotency_expires_ccnew'::regclass");
  auto supervisor = Start();
  EXPECT_TRUE(
      Eventually(30, [&] { return Sql("select to_regclass('tenure.idempotency_expires_ccnew') is null") == "t"; }));
  EXPECT_TRUE(Eventually(10, [&] { return Work("dropped") == 1; }));
}

TEST_F(VacuumGuardTest, DirectOnlyAStopEndsARebuildThatWaits) {
  Bloat();
  const store::Fence fence = **store_->AcquireLeader("vacuum-guard", replica_, absl::Minutes(1));
  auto other = store::postgres::Connection::Open(database_.url(), "other", absl::Seconds(5)).value();
  store::postgres::Transaction tx(*other, {absl::Seconds(30)});
  ASSERT_TRUE(tx.Run("insert into tenure.idempotency values (3, 0, 'x', 1, 1, '', now())", Params()).ok());
  std::stop_source stop;
  absl::Status ended;
  std::jthread rebuild([&] {
    ended = store_->RebuildIndex(fence, "idempotency_expires", {.lock = absl::Seconds(60), .total = absl::Seconds(60)},
                                 stop.get_token());
  });
  ASSERT_TRUE(Eventually(20, [&] {
    return Sql("select count(*) from pg_stat_activity where query like 'reindex index%' and wait_event_type = "
               "'Lock'") == "1";
  }));
  const Clock::TimePoint told = Clock::Real().Now();
  stop.request_stop();
  rebuild.join();
  EXPECT_LT(Clock::Real().Now() - told, std::chrono::seconds(10));
  EXPECT_FALSE(ended.ok());
}

TEST_F(VacuumGuardTest, AStaleLeaderDoesNothingAndTwoReplicasHaveOneGuard) {
  const store::Fence stale = **store_->AcquireLeader("vacuum-guard", replica_, absl::Minutes(1));
  ASSERT_EQ(store_->ReleaseLeader(stale), absl::OkStatus());
  auto first = Start(), second = Start();
  ASSERT_TRUE(Eventually(20, [&] { return first->States()[0].leading || second->States()[0].leading; }));
  EXPECT_EQ(DetailsOf(store_->RebuildIndex(stale, "job_pkey", {}, std::stop_token())).reason, "TERM_OVER");
  EXPECT_EQ(DetailsOf(store_->DropLeftoverIndex(stale, "x_ccnew", {}, std::stop_token())).reason, "TERM_OVER");
  EXPECT_NE(first->States()[0].leading, second->States()[0].leading);
}

TEST_F(VacuumGuardTest, DoctorShowsTheWorstIndex) {
  testing::TestDaemonOptions options;
  options.database_url = database_.url();
  testing::TestDaemon daemon(options);
  const testing::CliRun doctor = testing::RunTenurectl(daemon.grpc_address(), "doctor");
  EXPECT_EQ(doctor.status, 0) << doctor.out << doctor.err;
  EXPECT_THAT(doctor.out,
              AllOf(HasSubstr("index bloat"), HasSubstr("would need"), HasSubstr("live rows in tenure.job")));
}

}  // namespace
}  // namespace tenure::background
