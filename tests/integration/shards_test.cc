// Shards on a real PostgreSQL: who holds what, when replicas come, go, vanish and fail, and that a write whose term is
// over is refused shard by shard. Layer: tests.
#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/background/recovery.h"
#include "server/background/registry.h"
#include "server/background/supervisor.h"
#include "server/base/status.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/lease_ledger.h"
#include "tests/support/store_fixture.h"

namespace tenure::background {
namespace {

using store::ShardFence;
using testing::Eventually;
using testing::StoreTest;

class ShardsTest : public StoreTest {
 protected:
  ShardsTest() {
    testing::KeepLedger([this](const std::string& sql) { return Sql(sql); });
  }
  ~ShardsTest() override {
    const auto sql = [this](const std::string& text) { return Sql(text); };
    EXPECT_EQ(testing::AuditShards(sql), "");
    for (const char* worker : {"reaper", "retention"}) EXPECT_EQ(testing::AuditTiling(sql, worker), "");
  }

  int32_t Register(const std::string& name) {
    const auto id = store_->RegisterReplica(name, "test");
    EXPECT_EQ(id.status(), absl::OkStatus());
    return id.value_or(0);
  }
  // Looks once for `replica`, and says what it holds then.
  std::string Look(int32_t replica, absl::Duration lease = absl::Seconds(30), const std::string& worker = "reaper") {
    const auto held = store_->LeaseShards(worker, replica, lease);
    if (!held.ok()) return held.status().ToString();
    std::vector<store::ShardRow> rows;
    for (const store::ShardLease& one : *held) {
      EXPECT_GT(one.remaining, absl::ZeroDuration());
      EXPECT_LE(one.remaining, lease);
      rows.push_back({.first = one.fence.first, .last = one.fence.last});
    }
    return store::FormatShards(rows);
  }
  ShardFence Fence(int32_t replica, const std::string& worker = "reaper") {
    const auto held = store_->LeaseShards(worker, replica, absl::Seconds(30));
    return held.ok() && !held->empty() ? held->front().fence : ShardFence{};
  }
  int32_t MakeQueue(const std::string& name) {
    const auto queue = store_->EnsureQueue(name, true);
    EXPECT_EQ(queue.status(), absl::OkStatus());
    return queue.ok() ? queue->id : 0;
  }
  // Leases of one job of the queue, granted by a replica that has vanished, that have run out.
  void LeaveOrphan(int32_t queue) {
    store::NewJob job;
    job.kind = "k";
    ASSERT_EQ(store_->Enqueue(queue, std::vector<store::NewJob>{job}).status(), absl::OkStatus());
    const int32_t gone = Register("gone");
    store::ClaimBatch batch;
    batch.queue = queue;
    batch.replica = gone;
    batch.ranges = {{0, store::kLowestKey, store::kHighestKey}};
    batch.workers = {"w"};
    batch.slots.assign(1, {.worker = 0, .request = -1, .lease = absl::Microseconds(1)});
    const auto claimed = store_->Claim(batch);
    ASSERT_TRUE(claimed.ok() && claimed->jobs.size() == 1) << claimed.status();
    Sql(absl::StrCat("update tenure.replica set lease_until = now() - interval '1 s' where id = ", gone));
  }
  std::string State(int32_t queue) {
    return Sql(absl::StrCat("select string_agg(state::text, ',') from tenure.job where queue_id = ", queue));
  }
};

TEST_F(ShardsTest, TheShardOfAQueueIsTheSameInSqlAndInTheDaemon) {
  std::vector<int32_t> queues = {1, 2, 3, 1000, 65'536, 1'000'003, std::numeric_limits<int32_t>::max()};
  for (int32_t i = 1; i < 300; ++i) queues.push_back(i * 7919);
  for (const int32_t queue : queues) {
    ASSERT_EQ(Sql(absl::StrCat("select tenure.shard_of(", queue, ")")), absl::StrCat(store::ShardOf(queue))) << queue;
  }
}

TEST_F(ShardsTest, TheRangesFollowTheReplicas) {
  const int32_t a = Register("a"), b = Register("b"), c = Register("c");
  EXPECT_EQ(Look(a), "0-1023");
  EXPECT_EQ(Look(b), "") << "nothing is free yet";
  EXPECT_EQ(Look(a), "0-511");
  EXPECT_EQ(Look(b), "512-1023");
  EXPECT_EQ(Look(c), "");
  EXPECT_EQ(Look(a), "0-340");
  EXPECT_EQ(Look(b), "341-681") << "gives up at one end and takes at the other";
  EXPECT_EQ(Look(c), "682-1023");
  // One leaves in order, and the others close up at once.
  EXPECT_EQ(store_->LeaveShards("reaper", b), absl::OkStatus());
  EXPECT_EQ(Look(a), "0-511");
  EXPECT_EQ(Look(c), "512-1023");
  EXPECT_EQ(Sql("select count(*) from tenure.shard_lease"), "2");
  // Another worker's shards are another matter.
  EXPECT_EQ(Look(b, absl::Seconds(30), "retention"), "0-1023");
}

TEST_F(ShardsTest, WhatAVanishedReplicaHeldIsTakenWithinALeaseAndNotBefore) {
  const int32_t a = Register("a"), b = Register("b");
  EXPECT_EQ(Look(a, absl::Seconds(2)), "0-1023");
  Look(b);
  EXPECT_EQ(Look(a, absl::Seconds(2)), "0-511");
  EXPECT_EQ(Look(b), "512-1023");
  const Clock::TimePoint vanished = Clock::Real().Now();
  ASSERT_TRUE(Eventually(20, [&] { return Look(b) == "0-1023"; }));
  const auto waited = Clock::Real().Now() - vanished;
  EXPECT_GE(waited, std::chrono::milliseconds(1300)) << "not while the lease, renewed at a third, was valid";
  EXPECT_LE(waited, std::chrono::seconds(4));
}

TEST_F(ShardsTest, AReplicaThatIsNotRegisteredAnyMoreGetsNothing) {
  const int32_t a = Register("a");
  EXPECT_EQ(Look(a), "0-1023");
  EXPECT_EQ(store_->UnregisterReplica(a), absl::OkStatus());
  EXPECT_EQ(Look(a), "");
  EXPECT_EQ(Look(Register("b")), "0-1023");
}

TEST_F(ShardsTest, AWriteIsRefusedForShardsThatAnotherReplicaHasByNow) {
  const int32_t a = Register("a"), b = Register("b");
  Look(a);
  const ShardFence stale = Fence(a);
  // Two queues, in either half.
  int32_t low = 0, high = 0;
  for (int i = 0; low == 0 || high == 0; ++i) {
    const int32_t queue = MakeQueue(absl::StrCat("q", i));
    (store::ShardOf(queue) < 512 ? low : high) = queue;
  }
  LeaveOrphan(low);
  LeaveOrphan(high);
  // What the replica has read when it is stopped, before it writes.
  const auto orphans = store_->ListOrphans(stale, 0);
  ASSERT_EQ(orphans.status(), absl::OkStatus());
  ASSERT_EQ(orphans->due.size(), 2u);
  Look(b);
  EXPECT_EQ(Look(a), "0-511");
  EXPECT_EQ(Look(b), "512-1023");
  // It goes on with the term that it had: still its own for the lower half, refused for the upper one.
  for (const auto& [queue, leases] : orphans->due) {
    const auto recovered = store_->Recover(stale, queue, leases, orphans->as_of);
    ASSERT_EQ(recovered.status(), absl::OkStatus());
    EXPECT_EQ(recovered->recovered, queue == low ? 1 : 0);
  }
  EXPECT_EQ(State(low), "3");
  EXPECT_EQ(State(high), "4");
  EXPECT_EQ(RecoverVanished(*store_, Fence(b), 10)->recovered, 1);
  EXPECT_EQ(State(high), "3");
}

// The statement that writes holds the row of its range: who would take it over waits until the write is committed.
TEST_F(ShardsTest, ATakeoverWaitsForAWriteInProgressAndEndsItsTerm) {
  const int32_t a = Register("a"), b = Register("b");
  const int32_t queue = MakeQueue("q");
  LeaveOrphan(queue);
  Look(a, absl::Milliseconds(500));
  const ShardFence fence = Fence(a);
  Sql("update tenure.shard_lease set expires_at = now()");
  Sql("update tenure.shard_member set expires_at = now()");
  // The writer stands still between its read of the term and its write, for a second.
  Sql("create function tenure.stand_still() returns trigger language plpgsql as $$ begin perform pg_sleep(1); return "
      "new; end $$");
  Sql("create trigger stand_still before update on tenure.job for each row execute function tenure.stand_still()");
  std::jthread writer([&] { EXPECT_EQ(RecoverVanished(*store_, fence, 10)->recovered, 1); });
  ASSERT_TRUE(Eventually(20, [&] {
    return Sql("select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()") ==
           "1";
  }));
  auto other = OpenStore();
  const auto held = other->LeaseShards("reaper", b, absl::Seconds(30));
  ASSERT_TRUE(held.ok() && held->size() == 1) << held.status();
  EXPECT_EQ(State(queue), "3") << "committed before the takeover";
  writer.join();
  EXPECT_GT(held->front().fence.term, fence.term);
  EXPECT_EQ(DetailsOf(store_->DropPartitions(fence, 7, 30).status()).reason, "") << "nothing to drop";
  Sql("select tenure.ensure_day(tenure.today() - 20)");
  EXPECT_EQ(DetailsOf(store_->DropPartitions(fence, 7, 30).status()).reason, "TERM_OVER");
}

TEST_F(ShardsTest, AShardWhoseWorkFailsIsGivenUpAloneAndShowsInTheList) {
  const int32_t a = Register("a");
  Look(a);
  const ShardFence fence = Fence(a);
  EXPECT_EQ(store_->GiveUpShard(fence, a, 17, "broken"), absl::OkStatus());
  EXPECT_EQ(DetailsOf(store_->GiveUpShard({"reaper", 0, 1023, 99}, a, 18, "broken")).reason, "TERM_OVER");
  EXPECT_EQ(Look(a), "0-16, 18-1023");
  EXPECT_EQ(store_->ReportShardRun("reaper", a, {.ok = true, .error = "", .restarted = false, .runs = 3}),
            absl::OkStatus());
  const auto rows = store_->ListBackground();
  ASSERT_EQ(rows.status(), absl::OkStatus());
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].holder, "");
  EXPECT_EQ((*rows)[0].shards, "17");
  EXPECT_EQ((*rows)[0].last_error, "broken");
  EXPECT_EQ((*rows)[1].name, "reaper");
  EXPECT_EQ((*rows)[1].holder, "a");
  EXPECT_EQ((*rows)[1].shards, "0-16, 18-1023");
  EXPECT_EQ((*rows)[1].runs, 3);
  EXPECT_TRUE((*rows)[1].last_success.has_value());
  EXPECT_TRUE((*rows)[1].since.has_value());
  EXPECT_EQ(store_->ListReplicas()->front().leads, std::vector<std::string>{"reaper"});
  // It comes back after its rest.
  EXPECT_TRUE(Eventually(20, [&] { return Look(a) == "0-1023"; }));
  EXPECT_EQ(store_->ListBackground()->size(), 1u);
}

// Four replicas look, leave, fail and vanish at once, from threads of their own; the fixture audits the ledger.
TEST_F(ShardsTest, ManyReplicasAtOnceNeverShareAShard) {
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread] {
      auto own = OpenStore(1);
      int32_t replica = *own->RegisterReplica(absl::StrCat("r", thread), "test");
      for (int step = 0; step < 60; ++step) {
        const auto held = own->LeaseShards("reaper", replica, absl::Milliseconds(300));
        ASSERT_EQ(held.status(), absl::OkStatus());
        if (step % 7 == thread && !held->empty()) {
          const absl::Status given = own->GiveUpShard((*held)[0].fence, replica, (*held)[0].fence.first, "broken");
          ASSERT_TRUE(given.ok() || IsTermOver(given)) << given;
        }
        if (step % 13 == thread * 3) {
          ASSERT_EQ(own->LeaveShards("reaper", replica), absl::OkStatus());
        }
        // Vanishes, and comes back as another one.
        if (step % 29 == thread * 5 + 1) replica = *own->RegisterReplica(absl::StrCat("r", thread), "test");
      }
    });
  }
  threads.clear();
  EXPECT_EQ(testing::AuditTiling([this](const std::string& sql) { return Sql(sql); }, "reaper"), "");
  EXPECT_GT(std::stoi(Sql("select count(distinct replica_id) from public.ledger")), 3);
}

// Retention: each replica removes the keys of its own queues.
TEST_F(ShardsTest, KeysAreRemovedByTheReplicaThatHoldsTheirShard) {
  const int32_t a = Register("a"), b = Register("b");
  Look(a, absl::Minutes(1), "retention");
  Look(b, absl::Minutes(1), "retention");
  ASSERT_EQ(Look(a, absl::Minutes(1), "retention"), "0-511");
  ASSERT_EQ(Look(b, absl::Minutes(1), "retention"), "512-1023");
  int low = 0;
  for (int i = 0; i < 20; ++i) {
    const int32_t queue = MakeQueue(absl::StrCat("q", i));
    low += store::ShardOf(queue) < 512 ? 1 : 0;
    Sql(absl::StrCat("insert into tenure.idempotency values (", queue, ", 0, 'k', 1, 1, '', now() - interval '1 s')"));
  }
  ASSERT_GT(low, 0);
  EXPECT_EQ(store_->Prune(Fence(a, "retention"), 100).value_or(-1), low);
  EXPECT_EQ(Sql("select count(*) from tenure.idempotency where tenure.shard_of(queue_id) < 512"), "0");
  EXPECT_EQ(Sql("select count(*) from tenure.idempotency"), absl::StrCat(20 - low));
  EXPECT_EQ(store_->Prune(Fence(b, "retention"), 100).value_or(-1), 20 - low);
}

// One replica as the daemon makes it, with the reaper alone.
class Replica {
 public:
  Replica(std::unique_ptr<store::postgres::PostgresStore> opened, const std::string& name) : store_(std::move(opened)) {
    id_ = store_->RegisterReplica(name, "test").value_or(0);
    EXPECT_EQ(store_->Heartbeat(id_, false, absl::Minutes(5)), absl::OkStatus());
    const Dependencies dependencies{.store = store_.get(), .clock = &Clock::Real(), .tunables = &tunables_};
    supervisor_ = std::make_unique<Supervisor>(
        *SelectWorkers("reaper"), dependencies, metrics_, [this] { return id_.load(); },
        SupervisorOptions{.lease = absl::Seconds(2), .acquire_interval = absl::Milliseconds(50)});
    supervisor_->Start();
  }
  double Shards() { return metrics_.background_shards.Add({{"worker", "reaper"}}).Value(); }
  double Errors() { return metrics_.background_runs.Add({{"worker", "reaper"}, {"outcome", "error"}}).Value(); }
  WorkerState State() const { return supervisor_->States()[0]; }
  void Stop() { EXPECT_EQ(supervisor_->Stop(Clock::Real().Now() + std::chrono::seconds(20)), absl::OkStatus()); }

 private:
  Metrics metrics_;
  std::unique_ptr<store::postgres::PostgresStore> store_;
  std::atomic<int32_t> id_{0};
  Tunables tunables_ = DefaultTunables();
  std::unique_ptr<Supervisor> supervisor_;
};

TEST_F(ShardsTest, ThreeReplicasShareTheReaperAndRecoverEveryQueueOnce) {
  Replica a(OpenStore(), "a"), b(OpenStore(), "b"), c(OpenStore(), "c");
  ASSERT_TRUE(Eventually(30, [&] { return a.Shards() + b.Shards() + c.Shards() == 1024 && c.Shards() > 340; }));
  for (const Replica* replica : {&a, &b, &c}) EXPECT_TRUE(replica->State().leading);
  std::vector<int32_t> queues;
  for (int i = 0; i < 12; ++i) queues.push_back(MakeQueue(absl::StrCat("q", i)));
  for (const int32_t queue : queues) LeaveOrphan(queue);
  EXPECT_TRUE(Eventually(30, [&] { return Sql("select count(*) from tenure.job where state = 3") == "12"; }));
  EXPECT_EQ(Sql("select max(crashes) from tenure.job"), "1") << "none was ended twice";
  // One that is stopped hands over long before its lease is over.
  const Clock::TimePoint stopped = Clock::Real().Now();
  b.Stop();
  ASSERT_TRUE(Eventually(30, [&] { return a.Shards() + c.Shards() == 1024; }));
  EXPECT_LT(Clock::Real().Now() - stopped, std::chrono::milliseconds(1900));
  EXPECT_EQ(Sql("select count(distinct replica_id) from tenure.shard_lease where expires_at > now()"), "2");
}

TEST_F(ShardsTest, AQueueThatCannotBeRecoveredCostsItsOwnShardAlone) {
  const int32_t bad = MakeQueue("bad");
  std::vector<int32_t> good;
  for (int i = 0; i < 5; ++i) good.push_back(MakeQueue(absl::StrCat("good", i)));
  // Recovering a job of this queue fails in the database, each time.
  Sql(absl::StrCat(
      "create function tenure.break_it() returns trigger language plpgsql as $$ begin if new.queue_id = ", bad,
      " and new.state = 3 and old.state = 4 then raise exception 'no luck'; end if; return new; end $$"));
  Sql("create trigger break_it before update on tenure.job for each row execute function tenure.break_it()");
  Replica a(OpenStore(), "a"), b(OpenStore(), "b");
  ASSERT_TRUE(Eventually(30, [&] { return a.Shards() == 512 && b.Shards() == 512; }));
  LeaveOrphan(bad);
  ASSERT_TRUE(Eventually(30, [&] { return a.Shards() + b.Shards() == 1023; }));
  for (const int32_t queue : good) LeaveOrphan(queue);
  EXPECT_TRUE(Eventually(30, [&] {
    return Sql(absl::StrCat("select count(*) from tenure.job where state = 3 and queue_id <> ", bad)) == "5";
  }));
  EXPECT_EQ(State(bad), "4");
  EXPECT_EQ(Sql("select first_shard = last_shard and first_shard = tenure.shard_of(" + absl::StrCat(bad) +
                ") and last_error like '%no luck%' from tenure.shard_lease where failures > 0"),
            "t");
  EXPECT_TRUE(a.State().leading && b.State().leading);
  EXPECT_EQ(a.State().restarts + b.State().restarts, 0);
  EXPECT_GE(a.Errors() + b.Errors(), 1) << "counted, and shown with the shard that rests:";
  // Between two tries; while it is tried again it is somebody's.
  EXPECT_TRUE(Eventually(30, [&] {
    const auto rows = store_->ListBackground();
    return rows.ok() && rows->front().holder.empty() && rows->front().shards == absl::StrCat(store::ShardOf(bad)) &&
           absl::StrContains(rows->front().last_error, "no luck");
  }));
  Sql("drop trigger break_it on tenure.job");
  EXPECT_TRUE(Eventually(60, [&] { return State(bad) == "3" && a.Shards() + b.Shards() == 1024; }));
}

}  // namespace
}  // namespace tenure::background
