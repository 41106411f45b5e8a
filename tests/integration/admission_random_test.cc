// Admission under everything at once: several replicas, some of which vanish without a word, all ways to end a lease,
// limits that change, applications that enqueue and complete. An audit of every change of a row, with the clock of that
// change, shows how many jobs of a key were admitted at each instant. A slot that is freed at t by a transaction can be
// counted free only after that transaction has committed, so a correct system never shows more than the limit; what was
// ready counts as well as what was leased, which is more than the promise.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/background/recovery.h"
#include "server/base/status.h"
#include "tests/support/engine_fixture.h"

namespace tenure::engine {
namespace {

using store::ClaimedJob;
using testing::Eventually;
using testing::Replica;
using Random = std::mt19937;

constexpr char kAudit[] = R"sql(
create table public.audit (n bigserial primary key, at timestamptz, job_id bigint, keys text[], grp text, held boolean);
create function public.audit_job() returns trigger language plpgsql as $$
declare
  before boolean := tg_op <> 'INSERT' and old.state in (3, 4);
  after boolean := tg_op <> 'DELETE' and new.state in (3, 4);
begin
  if before is distinct from after then
    insert into public.audit (at, job_id, keys, grp, held)
    values (clock_timestamp(), coalesce(new.id, old.id), coalesce(new.concurrency_keys, old.concurrency_keys),
            coalesce(new.group_key, old.group_key), after);
  end if;
  return null;
end $$;
create trigger audit after insert or update or delete on tenure.job for each row execute function public.audit_job();
)sql";

class AdmissionRandomTest : public testing::ReplicaTest {
 protected:
  static int Draw(Random& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }
  std::shared_ptr<Replica> Any(Random& random) {
    std::lock_guard<std::mutex> lock(mu_);
    return replicas_[static_cast<size_t>(Draw(random, 0, static_cast<int>(replicas_.size()) - 1))];
  }

  void Produce(Random random) {
    for (int batch = 0; batch < 40; ++batch) {
      std::vector<store::NewJob> jobs(static_cast<size_t>(Draw(random, 5, 25)));
      for (store::NewJob& job : jobs) {
        job.kind = "k";
        job.priority = static_cast<int16_t>(Draw(random, 0, 3) == 0 ? 5 : 0);
        const int what = Draw(random, 0, 9);
        std::set<std::string> keys;
        if (what < 8) keys.insert(absl::StrCat("key:", Draw(random, 1, 6)));
        if (what < 3) keys.insert(absl::StrCat("tight:", Draw(random, 1, 2)));
        job.concurrency_keys.assign(keys.begin(), keys.end());
        if (what % 3 == 0) job.group = absl::StrCat("g", Draw(random, 1, 15));
        if (Draw(random, 0, 9) == 0) job.delay = absl::Milliseconds(Draw(random, 1, 200));
      }
      const size_t count = jobs.size();
      auto outcomes = Any(random)->Enqueue("q", std::move(jobs));
      if (!outcomes.ok()) continue;  // Its replica has vanished.
      int64_t accepted = 0;
      for (size_t i = 0; i < count; ++i) accepted += (*outcomes)[i].status.ok();
      accepted_ += accepted;
      if (batch % 4 == 0) {
        Sql(absl::StrCat("select tenure.enqueue('q', 'k', concurrency_keys => '{tight:1,key:", Draw(random, 1, 6),
                         "}', group_key => 'g", Draw(random, 1, 15), "')"));
        ++accepted_;
      }
    }
  }

  void Work(Random random) {
    while (!done_) {
      auto replica = Any(random);
      auto answer = replica->Claim("q", Draw(random, 1, 8), absl::Milliseconds(300), absl::Seconds(1));
      if (!answer.ok()) continue;
      for (const ClaimedJob& job : answer->jobs) Settle(random, job);
    }
  }

  void Settle(Random& random, const ClaimedJob& job) {
    const int way = job.job.attempt > 4 ? 0 : Draw(random, 0, 99);
    // A worker that is gone: the lease runs out.
    if (way >= 96) return;
    auto replica = Any(random);
    if (way < 60) {
      replica->Complete({{job.token, std::nullopt, {}}}, 5).IgnoreError();
    } else if (way < 66) {
      // An application's own transaction; a token that is stale makes it fail, as it should.
      Sql(absl::StrCat("do $$ begin perform tenure.complete('", job.token.ToString(),
                       "'); exception when sqlstate 'TN001' then null; end $$"));
    } else if (way < 74) {
      replica->Fail({{job.token, {"boom"}, false, absl::Milliseconds(Draw(random, 0, 50)), std::nullopt, ""}}, 5)
          .IgnoreError();
    } else if (way < 78) {
      replica->Fail({{job.token, {"boom"}, true, std::nullopt, std::nullopt, ""}}, 5).IgnoreError();
    } else if (way < 84) {
      replica->Release({{job.token, absl::Milliseconds(Draw(random, 0, 1) * 40)}}, 5).IgnoreError();
    } else if (way < 90) {
      replica->Snooze({{job.token, absl::Milliseconds(Draw(random, 1, 50))}}, 5).IgnoreError();
    } else {
      replica->Cancel({job.job.id}, 5).IgnoreError();
    }
  }

  void Background() {
    const int32_t id = *store_->RegisterReplica("background", "test");
    const store::Fence promoter = **store_->AcquireLeader("promoter", id, absl::Hours(1));
    const store::ShardFence shards = testing::HoldShards(*store_, "reaper", id, absl::Hours(1));
    Random random(1);
    store::BlockedPage::Cursor at;
    while (!done_) {
      store_->Heartbeat(id, false, absl::Hours(1)).IgnoreError();
      auto promoted = store_->Promote(promoter, absl::InfinitePast(), 1000);
      ASSERT_TRUE(promoted.ok()) << promoted.status();
      Any(random)->engine->NoteGates(promoted->blocked);
      auto recovered = background::RecoverVanished(*store_, shards, 1000);
      ASSERT_TRUE(recovered.ok()) << recovered.status();
      Any(random)->engine->NoteGates(recovered->freed);
      auto page = store_->BlockedNames(at, 100);
      ASSERT_TRUE(page.ok()) << page.status();
      Any(random)->engine->NoteGates(page->names);
      at = page->next.value_or(store::BlockedPage::Cursor());
      Sql("select pg_sleep(0.02)");
    }
  }

  std::mutex mu_;
  std::vector<std::shared_ptr<Replica>> replicas_;  // Guarded by mu_.
  std::vector<std::shared_ptr<Replica>> vanished_;  // Kept to the end of the test.
  std::atomic<int64_t> accepted_{0};
  std::atomic<bool> done_{false};
};

// CASES 14, 15, 39: limits, groups and slots under crashes and races.
TEST_F(AdmissionRandomTest, LimitsHoldAtEveryInstantAndNothingIsLeftBehind) {
  uint32_t seed = std::random_device()();
  if (const char* given = std::getenv("TENURE_TEST_SEED"); given != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(given, &seed)) << given;
  }
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  RecordProperty("seed", absl::StrCat(seed));
  const int32_t queue = store_->EnsureQueue("q", true)->id;
  Sql(kAudit);
  ASSERT_TRUE(store_->SetLimit(queue, store::LimitScope::kPrefix, "key:", {3, std::nullopt}).ok());
  ASSERT_TRUE(store_->SetLimit(queue, store::LimitScope::kPrefix, "tight:", {1, std::nullopt}).ok());
  for (const char* name : {"a", "b", "c"}) replicas_.push_back(StartReplica(name));

  std::vector<std::thread> threads, producers;
  threads.emplace_back([&] { Background(); });
  for (uint32_t i = 0; i < 4; ++i) threads.emplace_back([&, i] { Work(Random(seed + 100 + i)); });
  for (uint32_t i = 0; i < 2; ++i) producers.emplace_back([&, i] { Produce(Random(seed + 200 + i)); });
  // Replicas vanish: nobody calls them any more, and what they had under way or in mind goes with them when their
  // connections do.
  for (int i = 0; i < 3; ++i) {
    Sql("select pg_sleep(1)");
    auto fresh = StartReplica(absl::StrCat("fresh", i));
    std::lock_guard<std::mutex> lock(mu_);
    vanished_.push_back(replicas_[static_cast<size_t>(i)]);
    replicas_[static_cast<size_t>(i)] = std::move(fresh);
    Sql(absl::StrCat(
        "select count(pg_terminate_backend(pid)) from unnest((select backend_pids from tenure.replica where id = ",
        vanished_.back()->engine->replica_id(), ")) as pid"));
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_TRUE(Eventually(90, [&] { return Sql("select count(*) from tenure.job") == "0"; }))
      << Sql("select string_agg(id || ':' || state || '/' || coalesce(gate::text, '-') || "
             "coalesce(concurrency_keys::text, '') "
             "|| coalesce(group_key, ''), ' ' order by id) from (select * from tenure.job order by id limit 30) j");
  done_ = true;
  for (std::thread& thread : threads) thread.join();

  EXPECT_GT(accepted_, 300);
  EXPECT_EQ(Sql("select count(*) from (select id from tenure.history union all select id from tenure.dead_letter) h"),
            absl::StrCat(accepted_.load()));
  // The most that were admitted at once, from the audit.
  const std::string most =
      "select coalesce(max(held), 0) from (select sum(case when held then 1 else -1 end) over (partition by name order "
      "by at, n) "
      "as held from (select a.at, a.n, a.held, k as name from public.audit a cross join unnest(a.keys) as k where k "
      "like '";
  EXPECT_EQ(Sql(absl::StrCat(most, "key:%') x) y")), "3") << "the limit was reached and never exceeded";
  EXPECT_EQ(Sql(absl::StrCat(most, "tight:%') x) y")), "1");
  EXPECT_EQ(Sql("select coalesce(max(held), 0) from (select sum(case when held then 1 else -1 end) over (partition by "
                "grp order by "
                "at, n) as held from public.audit where grp is not null) y"),
            "1");
  // And everything that was taken came back.
  EXPECT_EQ(Sql("select sum(case when held then 1 else -1 end) from public.audit"), "0");
  // Counts that never scan are right in the end.
  EXPECT_EQ(Sql("select coalesce(sum(blocked), 0) || ' ' || coalesce(sum(ready), 0) || ' ' || coalesce(sum(leased), 0) "
                "|| ' ' || "
                "coalesce(sum(scheduled), 0) from tenure.event"),
            "0 0 0 0");
}

}  // namespace
}  // namespace tenure::engine
