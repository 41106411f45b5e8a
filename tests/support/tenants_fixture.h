// Jobs of tenants in the queue `q`, through replicas. Layer: tests. Static members may be used from every thread.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engine_fixture.h"

namespace tenure::testing {

class TenantsTest : public ReplicaTest {
 protected:
  static store::NewJob Job(const std::string& tenant, int16_t priority = 0) {
    store::NewJob job;
    job.kind = "k";
    job.payload = {"{}", "application/json"};
    job.tenant = tenant;
    job.priority = priority;
    return job;
  }
  static void Enqueue(Replica& replica, const std::string& tenant, int jobs, int16_t priority = 0) {
    for (int left = jobs; left > 0; left -= 1000) {
      auto enqueued = replica.Enqueue(
          "q", std::vector<store::NewJob>(static_cast<size_t>(std::min(left, 1000)), Job(tenant, priority)));
      ASSERT_TRUE(enqueued.ok()) << enqueued.status();
    }
  }
  static void Create(Replica& replica, store::QueueSettings settings) {
    auto made = Replica::Await<engine::QueueInfo>(
        [&](auto done) { replica.engine->CreateQueue("q", settings, false, std::move(done)); });
    ASSERT_TRUE(made.ok()) << made.status();
  }
  static void Update(Replica& replica, store::QueueSettings settings, const std::set<std::string>& fields) {
    auto changed = Replica::Await<engine::QueueInfo>(
        [&](auto done) { replica.engine->UpdateQueue("q", settings, fields, std::move(done)); });
    ASSERT_TRUE(changed.ok()) << changed.status();
  }
  static void Weigh(Replica& replica, const std::string& tenant, int32_t weight) {
    auto set = Replica::Await<store::Limit>([&](auto done) {
      replica.engine->SetLimit("q", store::LimitScope::kTenant, tenant, {std::nullopt, std::nullopt, weight},
                               std::move(done));
    });
    ASSERT_TRUE(set.ok()) << set.status();
  }
  static void LimitQueue(Replica& replica, store::LimitSettings settings) {
    auto set = Replica::Await<store::Limit>(
        [&](auto done) { replica.engine->SetLimit("q", store::LimitScope::kQueue, "", settings, std::move(done)); });
    ASSERT_TRUE(set.ok()) << set.status();
  }
  static void Complete(Replica& replica, const std::vector<store::ClaimedJob>& jobs) {
    std::vector<engine::CompleteItem> items;
    for (const store::ClaimedJob& job : jobs) items.push_back({job.token, std::nullopt, {}});
    auto answers = replica.Complete(std::move(items));
    ASSERT_TRUE(answers.ok()) << answers.status();
  }
  // Claims and completes `jobs` jobs, `each` at a time; how many of each tenant.
  static std::map<std::string, int> Work(Replica& replica, int jobs, int each) {
    std::map<std::string, int> done;
    for (int left = jobs; left > 0;) {
      auto claimed = replica.Claim("q", std::min(each, left), absl::Seconds(20));
      EXPECT_TRUE(claimed.ok() && !claimed->jobs.empty()) << claimed.status() << " with " << left << " left";
      if (!claimed.ok() || claimed->jobs.empty()) break;
      for (const store::ClaimedJob& job : claimed->jobs) ++done[job.job.tenant];
      Complete(replica, claimed->jobs);
      left -= static_cast<int>(claimed->jobs.size());
    }
    return done;
  }
  static store::QueueSettings Fair() {
    store::QueueSettings settings;
    settings.fair_tenants = true;
    return settings;
  }
};

}  // namespace tenure::testing
