// Admission under everything at once: several replicas, some of which vanish without a word, all ways to end a lease,
// limits that change, applications that enqueue and complete. An audit of every change of a row, with the clock of that
// change, shows how many jobs of a key were admitted at each instant. A slot that is freed at t by a transaction can be
// counted free only after that transaction has committed, so a correct system never shows more than the limit; what was
// ready counts as well as what was leased, which is more than the promise. Of a queue whose tenants take turns another
// audit says who waited for a turn, who got one, and who started, when.
#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "tests/support/vanishing_replicas.h"

namespace tenure::engine {
namespace {

using store::ClaimedJob;
using testing::Replica;

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

// Gate 6 is the queue's, where a tenant's jobs wait for its turn.
constexpr char kTurnAudit[] = R"sql(
create table public.turns (n bigserial primary key, at timestamptz, tenant text, what text, rank bigint);
create function public.audit_turn() returns trigger language plpgsql as $$
declare
  waited boolean := tg_op <> 'INSERT' and coalesce(old.gate, 0) = 6;
  waits boolean := tg_op <> 'DELETE' and coalesce(new.gate, 0) = 6;
begin
  if waited is distinct from waits then
    insert into public.turns (at, tenant, what)
    values (clock_timestamp(), coalesce(new.tenant, old.tenant), case when waits then 'waits' else 'leaves' end);
  end if;
  if waited and tg_op = 'UPDATE' and new.gate = 0 then
    insert into public.turns (at, tenant, what, rank)
    values (clock_timestamp(), new.tenant, 'turn', new.rank);
  end if;
  if tg_op = 'UPDATE' and old.state = 3 and new.state = 4 then
    insert into public.turns (at, tenant, what) values (clock_timestamp(), new.tenant, 'start');
  end if;
  return null;
end $$;
create trigger audit_turn after insert or update or delete on tenure.job for each row execute function public.audit_turn();
)sql";

// Four tenants, by name.
const std::map<std::string, int> kWeights{{"w1", 1}, {"w2", 2}, {"w4", 4}, {"x1", 1}};
constexpr int kAllWeights = 8;

class AdmissionRandomTest : public testing::VanishingReplicasTest {
 protected:
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
    while (!done()) {
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

  // More jobs of every tenant while their backlogs are worked off, some with keys, groups and delays.
  void ProduceFair(Random random) {
    for (int batch = 0; batch < 30; ++batch) {
      std::vector<store::NewJob> jobs(static_cast<size_t>(Draw(random, 2, 10)));
      for (store::NewJob& job : jobs) {
        job.kind = "k";
        job.tenant = std::next(kWeights.begin(), Draw(random, 0, 3))->first;
        if (Draw(random, 0, 3) == 0) job.concurrency_keys = {absl::StrCat("key:", Draw(random, 1, 6))};
        if (Draw(random, 0, 5) == 0) job.group = absl::StrCat("g", Draw(random, 1, 15));
        if (Draw(random, 0, 9) == 0) job.priority = 5;
        if (Draw(random, 0, 9) == 0) job.delay = absl::Milliseconds(Draw(random, 1, 200));
      }
      Accept(Any(random)->Enqueue("q", std::move(jobs)));
    }
  }
  void Accept(const absl::StatusOr<std::vector<store::EnqueueOutcome>>& outcomes) {
    if (!outcomes.ok()) return;  // Its replica has vanished.
    for (const store::EnqueueOutcome& outcome : *outcomes) accepted_ += outcome.status.ok();
  }

  // `turns` jobs of the tenants, shared out by weight and in turn within each call, so that all have jobs waiting from
  // the first on.
  void EnqueueBacklog(Random random, int turns) {
    std::vector<store::NewJob> round;
    for (const auto& [tenant, weight] : kWeights) {
      for (int i = 0; i < weight; ++i) {
        round.emplace_back().kind = "k";
        round.back().tenant = tenant;
      }
    }
    std::vector<store::NewJob> jobs;
    while (static_cast<int>(jobs.size()) < turns) jobs.insert(jobs.end(), round.begin(), round.end());
    for (size_t at = 0; at < jobs.size(); at += 1000) {
      const auto first = jobs.begin() + static_cast<std::ptrdiff_t>(at);
      const auto last = jobs.begin() + static_cast<std::ptrdiff_t>(std::min(jobs.size(), at + 1000));
      Accept(Any(random)->Enqueue("q", std::vector<store::NewJob>(first, last)));
    }
  }

  std::string LeftBehind() {
    return Sql(
        "select string_agg(id || ':' || state || '/' || coalesce(gate::text, '-') || "
        "coalesce(concurrency_keys::text, '') || coalesce(group_key, ''), ' ' order by id) "
        "from (select * from tenure.job order by id limit 30) j");
  }

  // All jobs ended once, and everything that was taken came back.
  void ExpectAllOver() {
    EXPECT_EQ(Sql("select count(*) from (select id from tenure.history union all select id from tenure.dead_letter) h"),
              absl::StrCat(accepted_.load()));
    EXPECT_EQ(Sql("select sum(case when held then 1 else -1 end) from public.audit"), "0");
    // Counts that never scan are right in the end.
    EXPECT_EQ(Sql("select coalesce(sum(blocked), 0) || ' ' || coalesce(sum(ready), 0) || ' ' || coalesce(sum(leased), "
                  "0) || ' ' || coalesce(sum(scheduled), 0) from tenure.event"),
              "0 0 0 0");
  }

  // The most that were admitted at once of what `names` selects (public.audit a, and name), from the audit.
  std::string Most(const std::string& names) {
    return Sql(absl::StrCat(
        "select coalesce(max(held), 0) from (select sum(case when held then 1 else -1 end) over (partition by name ",
        "order by at, n) as held from (select a.at, a.n, a.held, ", names, ") x) y"));
  }

  // `late`: tenants begin to take turns once the backlog is ready.
  void RunFair(int32_t queue, int turns, bool late = false);

  std::atomic<int64_t> accepted_{0};
};

// CASES 14, 15, 39: limits, groups and slots under crashes and races.
TEST_F(AdmissionRandomTest, LimitsHoldAtEveryInstantAndNothingIsLeftBehind) {
  const uint32_t seed = Seed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  const int32_t queue = store_->EnsureQueue("q", true)->id;
  Sql(kAudit);
  ASSERT_TRUE(store_->SetLimit(queue, store::LimitScope::kPrefix, "key:", {3, std::nullopt}).ok());
  ASSERT_TRUE(store_->SetLimit(queue, store::LimitScope::kPrefix, "tight:", {1, std::nullopt}).ok());
  StartReplicas();
  EXPECT_TRUE(Run(
      seed, [&](Random random) { Work(std::move(random)); }, [&](Random random) { Produce(std::move(random)); }, 3))
      << LeftBehind();

  EXPECT_GT(accepted_, 300);
  EXPECT_EQ(Most("k as name from public.audit a cross join unnest(a.keys) as k where k like 'key:%'"), "3")
      << "the limit was reached and never exceeded";
  EXPECT_EQ(Most("k as name from public.audit a cross join unnest(a.keys) as k where k like 'tight:%'"), "1");
  EXPECT_EQ(Most("a.grp as name from public.audit a where a.grp is not null"), "1");
  ExpectAllOver();
}

// Shares by weight are judged while all tenants wait for a turn.
void AdmissionRandomTest::RunFair(int32_t queue, int turns, bool late) {
  const uint32_t seed = Seed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  Sql(kAudit);
  Sql(kTurnAudit);
  store::QueueSettings fair;
  fair.fair_tenants = true;
  if (!late) {
    ASSERT_TRUE(store_->UpdateQueue("q", fair, {"fair_tenants"}).ok());
  }
  ASSERT_TRUE(store_->SetLimit(queue, store::LimitScope::kPrefix, "key:", {3, std::nullopt}).ok());
  for (const auto& [tenant, weight] : kWeights) {
    if (weight == 1) continue;
    ASSERT_TRUE(store_->SetLimit(queue, store::LimitScope::kTenant, tenant, {std::nullopt, std::nullopt, weight}).ok());
  }
  StartReplicas();
  EnqueueBacklog(Random(seed), turns);
  ASSERT_GE(accepted_, turns);
  if (late) {
    ASSERT_TRUE(store_->UpdateQueue("q", fair, {"fair_tenants"}).ok());
  }
  EXPECT_TRUE(Run(
      seed, [&](Random random) { Work(std::move(random)); }, [&](Random random) { ProduceFair(std::move(random)); }, 3))
      << LeftBehind();

  Sql("create view public.line as select tenant, at, n, what, "
      "sum(case when what = 'waits' then 1 else -1 end) over (partition by tenant order by at, n) as jobs "
      "from public.turns where what in ('waits', 'leaves')");
  // The longest stretch in which all of them wait.
  Sql(absl::StrCat(
      "create view public.span as select at as begins, next as ends from (select at, lead(at) over (order by at, n) as "
      "next, sum(case when jobs = 0 then -1 else 1 end) over (order by at, n) as tenants from public.line where jobs = "
      "0 or (jobs = 1 and what = 'waits')) x where tenants = ",
      kWeights.size(), " order by next - at desc nulls last limit 1"));
  const auto count = [&](const std::string& what, const std::string& tenants) {
    return std::stoi(
        Sql(absl::StrCat("select count(*) from public.turns, public.span where at between begins and ends "
                         "and what = '",
                         what, "' and ", tenants)));
  };
  for (const std::string& what : {std::string("turn"), std::string("start")}) {
    if (late && what == "start") continue;  // What was ready before may have started without a turn.
    const int all = count(what, "true");
    EXPECT_GT(all, turns / 3) << "long enough to judge " << what;
    for (const auto& [tenant, weight] : kWeights) {
      const double due = 1.0 * all * weight / kAllWeights;
      EXPECT_NEAR(count(what, absl::StrCat("tenant = '", tenant, "'")), due, 0.05 * due) << what << " of " << tenant;
    }
  }
  // Nothing starves: in the order of turns no tenant is passed over for long.
  EXPECT_LT(std::stoi(Sql("select max(gap) from (select nth - lag(nth) over (partition by tenant order by nth) as gap "
                          "from (select tenant, row_number() over (order by rank, n) as nth from public.turns, "
                          "public.span where what = 'turn' and at between begins and ends) x) y")),
            4 * kAllWeights);
  EXPECT_EQ(Most("k as name from public.audit a cross join unnest(a.keys) as k"), "3");
  EXPECT_EQ(Most("a.grp as name from public.audit a where a.grp is not null"), "1");
  ExpectAllOver();
}

TEST_F(AdmissionRandomTest, TenantsShareByWeightWhateverHappens) { RunFair(store_->EnsureQueue("q", true)->id, 3000); }

TEST_F(AdmissionRandomTest, TenantsShareByWeightOnceTurnsAreTurnedOn) {
  RunFair(store_->EnsureQueue("q", true)->id, 3000, /*late=*/true);
  EXPECT_EQ(Sql("select count(*) > 0 from public.turns where what = 'waits'"), "t");
}

TEST_F(AdmissionRandomTest, TenantsShareTheQueuesLimitWhateverHappens) {
  const int32_t queue = store_->EnsureQueue("q", true)->id;
  ASSERT_TRUE(store_->SetLimit(queue, store::LimitScope::kQueue, "", {40, std::nullopt}).ok());
  RunFair(queue, 2000);
  EXPECT_EQ(Most("1 as name from public.audit a"), "40") << "the limit was reached and never exceeded";
}

}  // namespace
}  // namespace tenure::engine
