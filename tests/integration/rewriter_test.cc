// The rewriter on a real PostgreSQL, with rewrites that only this test knows. Layer: tests.
#include <atomic>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/background/registry.h"
#include "server/background/supervisor.h"
#include "server/base/status.h"
#include "server/store/postgres/rewrites.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/store_fixture.h"

namespace tenure::background {
namespace {

using store::postgres::PostgresOptions;
using store::postgres::PostgresStore;
using store::postgres::Rewrite;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StoreTest;

constexpr Rewrite kTrim{
    "trim-descriptions", "Test only",
    "with page as materialized (select q.id from tenure.queue q where q.id > $1::bigint order by q.id limit "
    "$2::bigint), "
    "written as (update tenure.queue as q set description = btrim(q.description) "
    "where q.id = any (array(select p.id from page p)) and q.description <> btrim(q.description) returning 1) "
    "select max(p.id)::bigint, count(*), (select count(*) from written) from page p"};
constexpr Rewrite kBroken{"broken", "Test only", "select $1::bigint, $2::bigint, 1 / 0"};

class RewriterTest : public StoreTest {
 protected:
  RewriterTest() {
    replica_ = *store_->RegisterReplica("r", "test");
    Sql("insert into tenure.queue (name, description) select 'q' || n, case when n % 2 = 0 then ' d ' else 'd' end "
        "from generate_series(1, 100) n");
  }
  std::unique_ptr<PostgresStore> Open(std::vector<Rewrite> rewrites) {
    PostgresOptions options;
    options.url = database_.url();
    options.rewrites = std::move(rewrites);
    return PostgresStore::Open(options, metrics_);
  }
  std::unique_ptr<Supervisor> Start(PostgresStore& store, const std::string& rate = "1000000") {
    tunables_ = DefaultTunables();
    EXPECT_EQ(tunables_.Set("rewriter.batch", "10"), absl::OkStatus());
    EXPECT_EQ(tunables_.Set("rewriter.interval", "100ms"), absl::OkStatus());
    EXPECT_EQ(tunables_.Set("rewriter.rate", rate), absl::OkStatus());
    const Dependencies dependencies{.store = &store, .clock = &Clock::Real(), .tunables = &tunables_};
    auto supervisor = std::make_unique<Supervisor>(
        *SelectWorkers("rewriter"), dependencies, metrics_, [this] { return replica_; },
        SupervisorOptions{.lease = absl::Seconds(6), .acquire_interval = absl::Milliseconds(50)});
    supervisor->Start();
    return supervisor;
  }
  std::string Old() { return Sql("select count(*) from tenure.queue where description = ' d '"); }
  double Rewritten(const char* name) { return metrics_.rewritten_rows.Add({{"rewrite", name}}).Value(); }

  int32_t replica_ = 0;
  Tunables tunables_ = DefaultTunables();
};

TEST_F(RewriterTest, ThisReleaseHasNone) {
  EXPECT_TRUE(store::postgres::AllRewrites().empty());
  EXPECT_THAT(*store_->ListRewrites(), IsEmpty());
}

TEST_F(RewriterTest, RowsAreRewrittenOnceAndTheirProgressShows) {
  auto store = Open({kTrim});
  auto supervisor = Start(*store);
  EXPECT_TRUE(Eventually(20, [&] { return (*store->ListRewrites())[0].done; }));
  EXPECT_EQ(Old(), "0");
  const store::RewriteProgress progress = (*store->ListRewrites())[0];
  EXPECT_EQ(progress.name, "trim-descriptions");
  EXPECT_EQ(progress.rows_read, 100);
  EXPECT_EQ(progress.rows_rewritten, 50);
  EXPECT_EQ(Rewritten("trim-descriptions"), 50);
  // It is remembered: what is written in the old form now is nobody's business here.
  Sql("update tenure.queue set description = ' d '");
  supervisor.reset();
  auto again = Start(*store);
  ASSERT_TRUE(Eventually(20, [&] { return again->States()[0].runs >= 2; }));
  EXPECT_EQ(Old(), "100");
}

TEST_F(RewriterTest, ItGoesOnWhereItWasAndAStaleLeaderWritesNothing) {
  auto store = Open({kTrim});
  const store::Fence first = **store->AcquireLeader("rewriter", replica_, absl::Hours(1));
  EXPECT_EQ(store->StepRewrite(first, "trim-descriptions", 30)->rows_read, 30);
  ASSERT_EQ(store->ReleaseLeader(first), absl::OkStatus());
  const store::Fence second = **store->AcquireLeader("rewriter", replica_, absl::Hours(1));
  EXPECT_EQ(DetailsOf(store->StepRewrite(first, "trim-descriptions", 30).status()).reason, "TERM_OVER");
  EXPECT_EQ(Old(), "35");
  EXPECT_EQ(store->NoteRewriteError(first, "trim-descriptions", "stale"), absl::OkStatus());
  EXPECT_EQ((*store->ListRewrites())[0].last_error, "");
  EXPECT_EQ(store->StepRewrite(second, "trim-descriptions", 1000)->rows_read, 70);
  EXPECT_FALSE((*store->ListRewrites())[0].done);
  EXPECT_TRUE(store->StepRewrite(second, "trim-descriptions", 1000)->done);
  EXPECT_EQ(DetailsOf(store->StepRewrite(second, "unknown", 1).status()).reason, "REWRITE_NOT_FOUND");
}

TEST_F(RewriterTest, TwoReplicasDoItTogetherOnce) {
  auto store = Open({kTrim}), other = Open({kTrim});
  auto first = Start(*store), second = Start(*other);
  EXPECT_TRUE(Eventually(20, [&] { return (*store->ListRewrites())[0].done; }));
  EXPECT_EQ((*store->ListRewrites())[0].rows_read, 100);
  EXPECT_NE(first->States()[0].leading, second->States()[0].leading);
}

TEST_F(RewriterTest, OneThatFailsIsToldAndKeepsLaterOnesWaiting) {
  auto store = Open({kBroken, kTrim});
  auto supervisor = Start(*store);
  EXPECT_TRUE(Eventually(20, [&] { return !(*store->ListRewrites())[0].last_error.empty(); }));
  EXPECT_THAT((*store->ListRewrites())[0].last_error, HasSubstr("division by zero"));
  EXPECT_THAT(supervisor->States()[0].last_error, HasSubstr("division by zero"));
  EXPECT_EQ(Old(), "50");
}

TEST_F(RewriterTest, TheRateIsKept) {
  auto store = Open({kTrim});
  const Clock::TimePoint began = Clock::Real().Now();
  auto supervisor = Start(*store, "100");
  EXPECT_TRUE(Eventually(20, [&] { return (*store->ListRewrites())[0].done; }));
  EXPECT_GE(Clock::Real().Now() - began, std::chrono::milliseconds(900)) << "100 rows at 100 a second";
}

}  // namespace
}  // namespace tenure::background
