// Background workers on a real PostgreSQL: leader leases between replicas, fenced writes, and what each worker does.
// Layer: tests.
#include <atomic>
#include <condition_variable>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/background/promoter_signal.h"
#include "server/background/recovery.h"
#include "server/background/registry.h"
#include "server/background/supervisor.h"
#include "server/base/clock.h"
#include "server/base/status.h"
#include "tests/support/store_fixture.h"

namespace tenure::background {
namespace {

using store::Fence;
using testing::StoreTest;

// One replica's supervisor with its own store on the shared database.
class Replica {
 public:
  Replica(std::unique_ptr<store::postgres::PostgresStore> opened, const std::string& name, const std::string& workers,
          SupervisorOptions options)
      : store_(std::move(opened)), signal_(Clock::Real()) {
    const auto id = store_->RegisterReplica(name, "test");
    EXPECT_EQ(id.status(), absl::OkStatus());
    id_ = id.value_or(0);
    EXPECT_EQ(store_->Heartbeat(id_, false, absl::Minutes(1)), absl::OkStatus());
    Dependencies dependencies{.store = store_.get(),
                              .clock = &Clock::Real(),
                              .tunables = &tunables_,
                              .note_ready =
                                  [this](const std::vector<store::ReadyRange>& ranges) {
                                    const std::lock_guard<std::mutex> lock(mutex_);
                                    for (const auto& range : ranges) ready_ += range.count;
                                    changed_.notify_all();
                                  },
                              .promoter_signal = &signal_};
    supervisor_ = std::make_unique<Supervisor>(
        *SelectWorkers(workers), dependencies, metrics_, [this] { return id_.load(); }, options);
    supervisor_->Start();
  }

  bool Leads(const std::string& worker) const { return State(worker).leading; }
  WorkerState State(const std::string& worker) const {
    for (const WorkerState& state : supervisor_->States()) {
      if (state.name == worker) return state;
    }
    return {};
  }
  // Jobs that were announced as ready, in all.
  bool AwaitReady(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return ready_ >= count; });
  }
  absl::Status Stop() { return supervisor_->Stop(Clock::Real().Now() + std::chrono::seconds(20)); }
  PromoterSignal& signal() { return signal_; }
  int32_t id() const { return id_; }
  store::Store& store() { return *store_; }

 private:
  Metrics metrics_;
  std::unique_ptr<store::postgres::PostgresStore> store_;
  std::atomic<int32_t> id_{0};
  PromoterSignal signal_;
  Tunables tunables_ = DefaultTunables();
  std::mutex mutex_;
  std::condition_variable changed_;
  int ready_ = 0;  // Guarded by mutex_.
  std::unique_ptr<Supervisor> supervisor_;
};

class BackgroundTest : public StoreTest {
 protected:
  std::unique_ptr<Replica> StartReplica(const std::string& name, const std::string& workers,
                                        absl::Duration lease = absl::Seconds(6)) {
    return std::make_unique<Replica>(OpenStore(), name, workers,
                                     SupervisorOptions{.lease = lease, .acquire_interval = absl::Milliseconds(50)});
  }

  // Polls what only the database knows.
  static bool Eventually(const std::function<bool()>& condition) {
    const Clock::TimePoint deadline = Clock::Real().Now() + std::chrono::seconds(30);
    while (!condition()) {
      if (Clock::Real().Now() >= deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  int32_t MakeQueue(const std::string& name) {
    const auto queue = store_->EnsureQueue(name, true);
    EXPECT_EQ(queue.status(), absl::OkStatus());
    return queue.ok() ? queue->id : 0;
  }

  absl::StatusOr<store::EnqueueResult> Enqueue(int32_t queue, absl::Duration delay, int count = 1,
                                               std::optional<absl::Duration> ttl = std::nullopt) {
    std::vector<store::NewJob> jobs(static_cast<size_t>(count));
    for (store::NewJob& job : jobs) {
      job.kind = "k";
      job.delay = delay;
      job.ttl = ttl;
    }
    return store_->Enqueue(queue, jobs);
  }

  static bool TermOver(const absl::Status& status) { return DetailsOf(status).reason == "TERM_OVER"; }
};

TEST_F(BackgroundTest, OneReplicaLeadsAndTheOtherTakesOverWhenItStops) {
  auto a = StartReplica("a", "stats");
  ASSERT_TRUE(Eventually([&] { return a->Leads("stats"); }));
  auto b = StartReplica("b", "stats");
  ASSERT_TRUE(Eventually([&] { return a->State("stats").runs >= 2; }));
  EXPECT_FALSE(b->Leads("stats"));
  const int64_t term = a->State("stats").term;
  EXPECT_EQ(a->Stop(), absl::OkStatus());
  // Released, so long before a lease is over.
  const Clock::TimePoint released = Clock::Real().Now();
  ASSERT_TRUE(Eventually([&] { return b->Leads("stats"); }));
  EXPECT_LT(Clock::Real().Now() - released, std::chrono::seconds(3));
  EXPECT_GT(b->State("stats").term, term);
  EXPECT_EQ(Sql("select holder from tenure.leader where worker = 'stats'"), "b");
}

TEST_F(BackgroundTest, NeverTwoLeadersOfOneTermAndTheTermOnlyGrows) {
  const auto first = store_->RegisterReplica("one", "test");
  const auto second = store_->RegisterReplica("two", "test");
  ASSERT_TRUE(first.ok() && second.ok());
  int64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    auto mine = store_->AcquireLeader("stats", *first, absl::Seconds(30));
    ASSERT_TRUE(mine.ok() && mine->has_value()) << mine.status();
    EXPECT_GT((*mine)->term, last);
    last = (*mine)->term;
    const auto theirs = store_->AcquireLeader("stats", *second, absl::Seconds(30));
    ASSERT_TRUE(theirs.ok()) << theirs.status();
    EXPECT_FALSE(theirs->has_value());
    EXPECT_EQ(store_->RenewLeader(**mine, absl::Seconds(30)), absl::OkStatus());
    EXPECT_EQ(store_->ReleaseLeader(**mine), absl::OkStatus());
    EXPECT_TRUE(TermOver(store_->RenewLeader(**mine, absl::Seconds(30))));
  }
}

TEST_F(BackgroundTest, ALeaderThatVanishedIsFollowedWithinALease) {
  const auto gone = store_->RegisterReplica("gone", "test");
  ASSERT_TRUE(gone.ok());
  const auto lease = store_->AcquireLeader("stats", *gone, absl::Seconds(2));
  ASSERT_TRUE(lease.ok() && lease->has_value());
  const Clock::TimePoint vanished = Clock::Real().Now();
  auto follower = StartReplica("follower", "stats");
  ASSERT_TRUE(Eventually([&] { return follower->Leads("stats"); }));
  const auto waited = Clock::Real().Now() - vanished;
  EXPECT_GE(waited, std::chrono::milliseconds(1500)) << "not while the lease was valid";
  EXPECT_LE(waited, std::chrono::seconds(4));
  EXPECT_GT(follower->State("stats").term, (*lease)->term);
}

TEST_F(BackgroundTest, AStaleLeadersWritesAreRefused) {
  const int32_t queue = MakeQueue("q");
  const auto replica = store_->RegisterReplica("stale", "test");
  ASSERT_TRUE(replica.ok());
  std::map<std::string, Fence> stale;
  for (const char* worker : {"promoter", "lifecycle", "stats"}) {
    auto fence = store_->AcquireLeader(worker, *replica, absl::Seconds(30));
    ASSERT_TRUE(fence.ok() && fence->has_value());
    stale[worker] = **fence;
    EXPECT_EQ(store_->ReleaseLeader(**fence), absl::OkStatus());
    ASSERT_TRUE((*store_->AcquireLeader(worker, *replica, absl::Seconds(30))).has_value()) << "the next term";
  }
  std::map<std::string, store::ShardFence> stale_shards;
  for (const char* worker : {"reaper", "retention"}) {
    stale_shards[worker] = testing::HoldShards(*store_, worker, *replica);
    EXPECT_EQ(store_->LeaveShards(worker, *replica), absl::OkStatus());
    EXPECT_GT(testing::HoldShards(*store_, worker, *replica).term, stale_shards[worker].term);
  }
  // Something for each of them to do.
  Sql("select tenure.ensure_day(tenure.today() - 20)");
  ASSERT_EQ(Enqueue(queue, absl::Milliseconds(1), 1, absl::Milliseconds(2)).status(), absl::OkStatus());
  ASSERT_TRUE(Eventually([&] {
    return Sql("select count(*) from tenure.job where state = 1 and due_at <= now() and expires_at <= now()") == "1";
  }));

  // Refused in words or by doing nothing; either way nothing is written.
  const auto promoted = store_->Promote(stale["promoter"], absl::InfinitePast(), 10);
  EXPECT_TRUE(promoted.ok() ? promoted->promoted == 0 : TermOver(promoted.status())) << promoted.status();
  const auto recovered = RecoverVanished(*store_, stale_shards["reaper"], 10);
  EXPECT_TRUE(recovered.ok() ? recovered->recovered == 0 : TermOver(recovered.status())) << recovered.status();
  const auto expired = store_->ExpireJobs(stale["lifecycle"], 10);
  EXPECT_TRUE(expired.ok() ? *expired == 0 : TermOver(expired.status())) << expired.status();
  const auto dropped = store_->DropPartitions(stale_shards["retention"], 7, 30);
  EXPECT_TRUE(dropped.ok() ? dropped->empty() : TermOver(dropped.status())) << dropped.status();
  EXPECT_TRUE(TermOver(store_->FoldStats(stale["stats"])));
  EXPECT_EQ(Sql("select to_regclass('tenure.history_' || to_char(now() - interval '20 days', 'YYYYMMDD')) is not null"),
            "t");
  EXPECT_EQ(Sql("select count(*) from tenure.job where expires_at <= now()"), "1");
  EXPECT_EQ(Sql("select count(*) from tenure.job where state = 1"), "1") << "nothing was written";
}

TEST_F(BackgroundTest, ScheduledJobsBecomeReadyWhenTheyAreDue) {
  const int32_t queue = MakeQueue("q");
  auto replica = StartReplica("a", "promoter");
  ASSERT_TRUE(Eventually([&] { return replica->State("promoter").runs >= 1; }));
  const auto result = Enqueue(queue, absl::Milliseconds(300), 3);
  ASSERT_EQ(result.status(), absl::OkStatus());
  ASSERT_TRUE(result->earliest_due.has_value());
  replica->signal().Scheduled(*result->earliest_due);
  ASSERT_TRUE(replica->AwaitReady(3));
  EXPECT_EQ(Sql("select count(*) from tenure.job where state = 3"), "3");
  EXPECT_EQ(Sql("select bool_and(updated_at >= due_at) from tenure.job"), "t") << "not before they are due";
  EXPECT_EQ(Sql("select max(updated_at - due_at) < interval '250 ms' from tenure.job"), "t");
}

TEST_F(BackgroundTest, ATransactionThatCommitsAfterItsJobsWereDueIsNotLeftBehind) {
  const int32_t queue = MakeQueue("q");
  auto replica = StartReplica("a", "promoter");
  ASSERT_TRUE(Eventually([&] { return replica->State("promoter").runs >= 1; }));
  // A job that commits now with a due time half a minute ago, as after a long transaction; the cursor has been past it.
  ASSERT_EQ(Enqueue(queue, absl::Hours(1)).status(), absl::OkStatus());
  Sql("update tenure.job set due_at = now() - interval '30 s'");
  replica->signal().Scheduled(-absl::Seconds(30));
  ASSERT_TRUE(replica->AwaitReady(1));
  EXPECT_EQ(Sql("select state from tenure.job"), "3");
}

TEST_F(BackgroundTest, ARowThatSomebodyHoldsIsPromotedOnceItIsFree) {
  const int32_t queue = MakeQueue("q");
  ASSERT_EQ(Enqueue(queue, absl::Milliseconds(1), 2).status(), absl::OkStatus());
  // pg_sleep holds the row for a moment, in a transaction of its own.
  std::jthread holder([&] {
    Sql("do $$ begin perform 1 from tenure.job where id = (select min(id) from tenure.job) for update; perform "
        "pg_sleep(1); end $$");
  });
  ASSERT_TRUE(Eventually([&] {
    return Sql("select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()") ==
           "1";
  }));
  auto replica = StartReplica("a", "promoter");
  ASSERT_TRUE(replica->AwaitReady(2)) << "long before the next full scan";
}

TEST_F(BackgroundTest, JobsThatWereNotStartedInTimeEnd) {
  const int32_t queue = MakeQueue("q");
  ASSERT_EQ(Enqueue(queue, absl::ZeroDuration(), 5, absl::Milliseconds(200)).status(), absl::OkStatus());
  auto replica = StartReplica("a", "lifecycle");
  EXPECT_TRUE(Eventually([&] { return Sql("select count(*) from tenure.job") == "0"; }));
  EXPECT_EQ(Sql("select count(*) from tenure.history where state = 9"), "5");
}

TEST_F(BackgroundTest, TheLeasesOfAVanishedReplicaAreRecovered) {
  const int32_t queue = MakeQueue("q");
  ASSERT_EQ(Enqueue(queue, absl::ZeroDuration(), 3).status(), absl::OkStatus());
  const auto gone = store_->RegisterReplica("gone", "test");
  ASSERT_TRUE(gone.ok());
  store::ClaimBatch batch;
  batch.queue = queue;
  batch.replica = *gone;
  batch.ranges = {{0, store::kLowestKey, store::kHighestKey}};
  batch.workers = {"w"};
  batch.slots.assign(3, {.worker = 0, .request = -1, .lease = absl::Seconds(1)});
  const auto claimed = store_->Claim(batch);
  ASSERT_EQ(claimed.status(), absl::OkStatus());
  ASSERT_EQ(claimed->jobs.size(), 3u);
  Sql("update tenure.replica set lease_until = now() - interval '1 s' where name = 'gone'");
  auto replica = StartReplica("a", "reaper");
  ASSERT_TRUE(replica->AwaitReady(3));
  EXPECT_EQ(Sql("select count(*) from tenure.job where state = 3"), "3");
}

TEST_F(BackgroundTest, RetentionDropsOldPartitionsAndMakesThoseToCome) {
  Sql("select tenure.ensure_day(tenure.today() - 20)");
  Sql("drop table tenure.history_" + absl::FormatTime("%Y%m%d", absl::Now() + absl::Hours(72), absl::UTCTimeZone()));
  auto replica = StartReplica("a", "retention");
  const std::string old = absl::FormatTime("%Y%m%d", absl::Now() - absl::Hours(24 * 20), absl::UTCTimeZone());
  const std::string coming = absl::FormatTime("%Y%m%d", absl::Now() + absl::Hours(72), absl::UTCTimeZone());
  EXPECT_TRUE(Eventually([&] { return Sql("select to_regclass('tenure.history_" + old + "') is null") == "t"; }));
  EXPECT_EQ(Sql("select to_regclass('tenure.history_" + coming + "') is not null"), "t");
  EXPECT_EQ(Sql("select to_regclass('tenure.dead_letter_" + old + "') is not null"), "t") << "kept 30 days";
}

TEST_F(BackgroundTest, ReportsShowInTheList) {
  auto replica = StartReplica("a", "stats");
  ASSERT_TRUE(Eventually([&] { return replica->State("stats").runs >= 1; }));
  ASSERT_TRUE(Eventually([&] {
    const auto rows = store_->ListBackground();
    return rows.ok() && !rows->empty() && rows->front().runs >= 1;
  }));
  const auto rows = store_->ListBackground();
  ASSERT_EQ(rows.status(), absl::OkStatus());
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ(rows->front().name, "stats");
  EXPECT_EQ(rows->front().holder, "a");
  EXPECT_TRUE(rows->front().last_success.has_value());
  EXPECT_EQ(rows->front().last_error, "");
}

}  // namespace
}  // namespace tenure::background
