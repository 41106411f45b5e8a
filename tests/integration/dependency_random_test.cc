// Graphs of jobs over several replicas, some of which vanish without a word, with failures, cancels, leases that run
// out and applications that complete. An audit of rows says when each job ended and when it first became ready, by the
// clock of that change: a correct system never lets one go before what it waits for has ended.
#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "tests/support/vanishing_replicas.h"

namespace tenure::engine {
namespace {

using store::ClaimedJob;
using testing::Eventually;
using testing::Replica;

constexpr char kAudit[] = R"sql(
create table public.went (job_id bigint, at timestamptz);
create table public.ended (job_id bigint primary key, at timestamptz);
create table public.edge (awaited_id bigint, job_id bigint, any_end boolean, release boolean);
create function public.audit_job() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    insert into public.ended values (old.id, clock_timestamp());
  elsif new.state in (3, 4) and (tg_op = 'INSERT' or old.state not in (3, 4)) then
    insert into public.went values (new.id, clock_timestamp());
  end if;
  return null;
end $$;
create trigger audit after insert or update or delete on tenure.job for each row execute function public.audit_job();
create function public.audit_edge() returns trigger language plpgsql as $$
begin
  insert into public.edge values (new.awaited_id, new.job_id, new.any_end, new.release);
  return null;
end $$;
create trigger audit after insert on tenure.dependency for each row execute function public.audit_edge();
)sql";

class DependencyRandomTest : public testing::VanishingReplicasTest {
 protected:
  void Produce(Random random) {
    std::vector<store::JobId> recent;
    for (int call = 0; call < 40; ++call) {
      std::vector<EnqueueItem> items(static_cast<size_t>(Draw(random, 3, 15)));
      for (size_t i = 0; i < items.size(); ++i) {
        items[i].queue = Draw(random, 0, 2) == 0 ? "r" : "q";
        store::NewJob& job = items[i].job;
        job.kind = "k";
        if (Draw(random, 0, 4) == 0) job.group = absl::StrCat("g", Draw(random, 1, 10));
        if (Draw(random, 0, 4) == 0) job.concurrency_keys = {absl::StrCat("key:", Draw(random, 1, 3))};
        if (Draw(random, 0, 9) == 0) job.delay = absl::Milliseconds(Draw(random, 1, 200));
        store::DependsOn depends_on;
        std::set<int32_t> earlier;
        for (int n = Draw(random, 0, 3); n > 0 && i > 0; --n) {
          earlier.insert(Draw(random, 0, static_cast<int>(i) - 1));
        }
        depends_on.items.assign(earlier.begin(), earlier.end());
        if (!recent.empty() && Draw(random, 0, 3) == 0) {
          depends_on.jobs.push_back(recent[static_cast<size_t>(Draw(random, 0, static_cast<int>(recent.size()) - 1))]);
        }
        if (depends_on.items.empty() && depends_on.jobs.empty()) continue;
        depends_on.all_ended = Draw(random, 0, 4) == 0;
        depends_on.release_on_failure = !depends_on.all_ended && Draw(random, 0, 4) == 0;
        job.depends_on = std::move(depends_on);
      }
      const size_t count = items.size();
      auto replica = Any(random);
      auto outcomes = Replica::Await<std::vector<store::EnqueueOutcome>>(
          [&](auto done) { replica->engine->Enqueue(std::move(items), testing::In(20), std::move(done)); });
      if (!outcomes.ok()) continue;  // Its replica has vanished, or somebody held a job that is waited for.
      for (size_t i = 0; i < count; ++i) {
        ASSERT_TRUE((*outcomes)[i].status.ok()) << (*outcomes)[i].status;
        recent.push_back((*outcomes)[i].id);
      }
      accepted_ += static_cast<int64_t>(count);
      if (recent.size() > 60) recent.erase(recent.begin(), recent.end() - 60);
    }
  }

  void Work(Random random) {
    while (!done()) {
      auto replica = Any(random);
      auto answer = replica->Claim(Draw(random, 0, 1) == 0 ? "q" : "r", Draw(random, 1, 8), absl::Milliseconds(50),
                                   absl::Seconds(1));
      if (!answer.ok()) continue;
      for (const ClaimedJob& job : answer->jobs) Settle(random, job);
    }
  }

  void Settle(Random& random, const ClaimedJob& job) {
    const int way = job.job.attempt > 4 ? 0 : Draw(random, 0, 99);
    if (way >= 97) return;  // A worker that is gone: the lease runs out.
    auto replica = Any(random);
    if (way < 75) {
      replica->Complete({{job.token, std::nullopt, {}}}, 5).IgnoreError();
    } else if (way < 82) {
      Sql(absl::StrCat("do $$ begin perform tenure.complete('", job.token.ToString(),
                       "'); exception when sqlstate 'TN001' then null; end $$"));
    } else if (way < 88) {
      replica->Fail({{job.token, {"boom"}, false, absl::Milliseconds(Draw(random, 0, 50)), std::nullopt, ""}}, 5)
          .IgnoreError();
    } else if (way < 92) {
      replica->Fail({{job.token, {"boom"}, true, std::nullopt, std::nullopt, ""}}, 5).IgnoreError();
    } else {
      replica->Cancel({job.job.id}, 5).IgnoreError();
    }
  }

  std::atomic<int64_t> accepted_{0};
};

TEST_F(DependencyRandomTest, EveryJobEndsAndNoneStartsBeforeWhatItWaitsFor) {
  const uint32_t seed = Seed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  const int32_t queue = store_->EnsureQueue("q", true)->id;
  store_->EnsureQueue("r", true).IgnoreError();
  Sql(kAudit);
  ASSERT_TRUE(store_->SetLimit(queue, store::LimitScope::kPrefix, "key:", {3, std::nullopt}).ok());
  StartReplicas();
  EXPECT_TRUE(Run(
      seed, [&](Random random) { Work(std::move(random)); }, [&](Random random) { Produce(std::move(random)); }, 2))
      << Sql("select string_agg(id || ':' || state || '/' || coalesce(gate::text, '-'), ' ' order by id) "
             "from (select * from tenure.job order by id limit 30) j");
  EXPECT_TRUE(Eventually(30, [&] {
    auto page = store_->SweepDependencies({}, 1000);
    return page.ok() && Sql("select count(*) from tenure.dependency") == "0";
  })) << "rows go with their jobs";

  EXPECT_GT(accepted_, 200);
  EXPECT_GT(std::stoi(Sql("select count(*) from public.edge")), 200);
  const std::string edges =
      "select count(*) from public.edge e left join public.ended a on a.job_id = e.awaited_id "
      "left join (select id, state from tenure.history union all select id, state from tenure.dead_letter) f on f.id = "
      "e.awaited_id left join (select id, state from tenure.history union all select id, state from "
      "tenure.dead_letter) "
      "d on d.id = e.job_id left join lateral (select min(w.at) as at from public.went w where w.job_id = e.job_id) w "
      "on "
      "true where ";
  EXPECT_EQ(Sql(edges + "w.at < coalesce(a.at, 'infinity') and not e.release"), "0") << "started too early";
  EXPECT_EQ(Sql(edges + "w.at is not null and not e.any_end and not e.release and f.state <> 6"), "0")
      << "started though one did not complete";
  EXPECT_EQ(Sql(edges + "not e.any_end and not e.release and f.state <> 6 and d.state <> 8"), "0")
      << "not cancelled though one did not complete";
  // One that was released early had a reason.
  EXPECT_EQ(
      Sql(edges + "e.release and w.at < coalesce(a.at, 'infinity') and not exists (select 1 from public.edge o "
                  "join public.ended b on b.job_id = o.awaited_id join (select id, state from tenure.history union "
                  "all select id, state from tenure.dead_letter) g on g.id = o.awaited_id "
                  "where o.job_id = e.job_id and g.state <> 6 and b.at <= w.at)"),
      "0");
  EXPECT_NE(Sql(edges + "d.state = 8 and d.id in (select h.id from tenure.history h where h.error_message like "
                        "'cancelled: it depends on%')"),
            "0")
      << "some were cancelled with what they wait for";
  EXPECT_EQ(Sql("select concat_ws(' ', sum(blocked), sum(ready), sum(leased), sum(scheduled)) from tenure.event"),
            "0 0 0 0");
}

}  // namespace
}  // namespace tenure::engine
