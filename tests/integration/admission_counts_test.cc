// What waits, by reason, and how much of a queue's limit is taken: counted from rows, and shown as metrics.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/background/admission_gauges.h"
#include "server/background/registry.h"
#include "server/background/supervisor.h"
#include "server/base/status.h"
#include "server/http/metrics_page.h"
#include "tests/support/tenants_fixture.h"

namespace tenure::engine {
namespace {

using testing::Eventually;
using testing::Replica;

std::string Page(Metrics& metrics) { return http::MetricsPage(metrics, nullptr).Render().body; }

class AdmissionCountsTest : public testing::TenantsTest {
 protected:
  static void Put(Replica& replica, const std::string& queue, std::vector<store::NewJob> jobs) {
    for (store::NewJob& job : jobs) job.kind = "k";
    auto outcomes = replica.Enqueue(queue, std::move(jobs));
    ASSERT_TRUE(outcomes.ok()) << outcomes.status();
    for (const store::EnqueueOutcome& outcome : *outcomes) ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  }
  static store::NewJob Keyed(std::vector<std::string> keys) {
    store::NewJob job;
    job.concurrency_keys = std::move(keys);
    return job;
  }
  static void Limit(Replica& replica, const std::string& queue, store::LimitScope scope, const std::string& key,
                    store::LimitSettings settings) {
    auto set = Replica::Await<store::Limit>(
        [&](auto done) { replica.engine->SetLimit(queue, scope, key, settings, std::move(done)); });
    ASSERT_TRUE(set.ok()) << set.status();
  }

  // A queue for each reason: keys 4 (one of them the second key), group 2, dependency 1 + 1, its limit, its rate,
  // turns.
  void FillQueues(Replica& a) {
    Limit(a, "keys", store::LimitScope::kPrefix, "a", {1, std::nullopt});
    Put(a, "keys", {Keyed({"a"}), Keyed({"a"}), Keyed({"a"}), Keyed({"a"}), Keyed({"0", "a"})});
    store::NewJob grouped;
    grouped.group = "g";
    Put(a, "groups", {grouped, grouped, grouped});
    store::NewJob first;
    first.kind = "k";
    auto awaited = a.Enqueue("groups", {first, first});
    ASSERT_TRUE(awaited.ok()) << awaited.status();
    store::NewJob waits;
    waits.depends_on = store::DependsOn();
    waits.depends_on->jobs = {(*awaited)[0].id, (*awaited)[1].id};
    Put(a, "groups", {waits});
    Put(a, "others", {waits});
    Limit(a, "limited", store::LimitScope::kQueue, "", {2, std::nullopt});
    Put(a, "limited", std::vector<store::NewJob>(7));
    Limit(a, "paced", store::LimitScope::kQueue, "", {std::nullopt, store::Rate{absl::Hours(1), 1}});
    Put(a, "paced", std::vector<store::NewJob>(4));
    Create(a, Fair());
    Enqueue(a, "t", 100);
    store::NewJob other;
    other.tenant = "u";
    // Beyond the window as it is, but where newcomers go.
    Put(a, "q", std::vector<store::NewJob>(70, other));
    Put(a, "plain", std::vector<store::NewJob>(3));
  }
};

TEST_F(AdmissionCountsTest, EachReasonIsCountedAndShown) {
  auto a = StartReplica("a");
  FillQueues(*a);
  const store::Fence stats = **store_->AcquireLeader("stats", a->engine->replica_id(), absl::Hours(1));
  std::map<std::string, store::AdmissionCounts> queues;
  const auto count = [&] {
    EXPECT_TRUE(store_->FoldStats(stats).ok());
    auto counted = store_->CountBlocked();
    EXPECT_TRUE(counted.ok()) << counted.status();
    queues.clear();
    if (counted.ok()) {
      for (const store::AdmissionCounts& one : *counted) queues[one.name] = one;
    }
    return queues["keys"].key == 4 && queues["groups"].group == 2 && queues["limited"].gate == 5 &&
           queues["paced"].gate == 3 && queues["q"].gate > 0;
  };
  ASSERT_TRUE(Eventually(20, count)) << "all that can pass has passed";
  EXPECT_FALSE(queues.contains("plain"));
  EXPECT_EQ(queues["groups"].dependency, 1) << "a job counts once, whatever it waits for";
  EXPECT_EQ(queues["others"].dependency, 1);
  EXPECT_EQ(queues["keys"].group + queues["keys"].gate + queues["keys"].dependency, 0);
  EXPECT_EQ(queues["limited"].max, 2);
  EXPECT_EQ(queues["limited"].held, 2);
  EXPECT_TRUE(queues["q"].fair);
  EXPECT_EQ(queues["q"].tenants, 2);
  EXPECT_EQ(std::to_string(queues["q"].gate), Sql("select count(*) from tenure.job where gate = 6 and tenant <> ''"));

  Metrics metrics;
  const auto blocked = [&](const std::string& queue, const std::string& reason) {
    return metrics.queue_blocked_jobs.Add({{"queue", queue}, {"reason", reason}}).Value();
  };
  std::vector<store::AdmissionCounts> all;
  for (const auto& [unused, one] : queues) all.push_back(one);
  {
    background::AdmissionGauges gauges(metrics);
    gauges.Update(all);
    EXPECT_EQ(blocked("keys", "key"), 4);
    EXPECT_EQ(blocked("groups", "group"), 2);
    EXPECT_EQ(blocked("groups", "dependency"), 1);
    EXPECT_EQ(blocked("limited", "queue"), 5);
    EXPECT_EQ(blocked("paced", "rate"), 3);
    EXPECT_EQ(blocked("q", "turn"), static_cast<double>(queues["q"].gate));
    EXPECT_EQ(metrics.queue_waiting_tenants.Add({{"queue", "q"}}).Value(), 2);
    EXPECT_EQ(metrics.queue_limit_jobs.Add({{"queue", "limited"}}).Value(), 2);
    EXPECT_EQ(metrics.queue_limit_held_jobs.Add({{"queue", "limited"}}).Value(), 2);
    EXPECT_NE(Page(metrics).find("tenure_queue_limit_jobs{queue=\"limited\"} 2"), std::string::npos);
  }
  EXPECT_EQ(Page(metrics).find("tenure_queue_limit_jobs{"), std::string::npos) << "gone with the leadership";
}

// As a daemon does it: the worker counts as soon as it leads.
TEST_F(AdmissionCountsTest, TheLeaderShowsThem) {
  auto a = StartReplica("a");
  Limit(*a, "limited", store::LimitScope::kQueue, "", {2, std::nullopt});
  Put(*a, "limited", std::vector<store::NewJob>(7));
  Metrics metrics;
  const background::Tunables tunables = background::DefaultTunables();
  const background::Dependencies dependencies{
      .store = a->store.get(),
      .clock = &Clock::Real(),
      .tunables = &tunables,
      .note_gates = [&](const store::GatesByQueue& gates) { a->engine->NoteGates(gates); },
      .metrics = &metrics};
  background::Supervisor supervisor(
      *background::SelectWorkers("admission"), dependencies, metrics, [&] { return a->engine->replica_id(); },
      background::SupervisorOptions{.lease = absl::Seconds(6), .acquire_interval = absl::Milliseconds(50)});
  supervisor.Start();
  EXPECT_TRUE(Eventually(40, [&] {
    return Page(metrics).find("tenure_queue_blocked_jobs{queue=\"limited\",reason=\"queue\"} 5") != std::string::npos;
  })) << Page(metrics);
  EXPECT_TRUE(supervisor.Stop(testing::In(20)).ok());
}

}  // namespace
}  // namespace tenure::engine
