// Schedules in whole daemons: they fire, on time, on one replica at a time, and go on when the leader is killed or
// stopped. Layer: tests.
#include <csignal>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/client.h"
#include "tests/support/daemon_fixture.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/store_fixture.h"

namespace tenure::testing {
namespace {

using namespace std::chrono_literals;

class ScheduleDaemonTest : public DaemonFixture {
 protected:
  std::unique_ptr<TestDaemon> Start(const std::string& background, std::vector<std::string> set = {}) {
    TestDaemonOptions options;
    options.database_url = database_.url();
    options.settings = {{"background", background}};
    options.set = std::move(set);
    return std::make_unique<TestDaemon>(options);
  }
  static client::ScheduleSpec EverySecond() {
    client::ScheduleSpec spec;
    spec.interval = 1s;
    spec.job.queue = "q";
    spec.job.kind = "k";
    return spec;
  }
  int Runs() { return std::stoi(Sql("select count(*) from tenure.schedule_run")); }
  bool AwaitRuns(int count, double seconds = 30) {
    return Eventually(seconds, [&] { return Runs() >= count; });
  }
  // Each slot from the first to the last has one run and one job.
  void ExpectNoSlotDoubledOrLost() {
    EXPECT_EQ(Sql("select count(*) - 1 = extract(epoch from max(slot) - min(slot)) from tenure.schedule_run"), "t")
        << Sql("select string_agg(slot::text, ' ' order by slot) from tenure.schedule_run");
    EXPECT_EQ(Sql("select count(*) = count(distinct headers ->> 'tenure-slot') and count(*) = (select count(*) from "
                  "tenure.schedule_run) from tenure.job"),
              "t");
  }
};

TEST_F(ScheduleDaemonTest, ASlotWakesAPollThatIsParkedOnAnotherReplica) {
  const auto leader = Start("all"), other = Start("none");
  client::Client client = Connect(other->grpc_address());
  ASSERT_EQ(client.CreateSchedule("s", EverySecond()).status(), absl::OkStatus());
  client::ClaimOptions claim;
  claim.worker_id = "w";
  claim.queues = {{"q"}};
  claim.max_jobs = 1;
  claim.wait = 20s;
  for (int slot = 0; slot < 3; ++slot) {
    const auto claimed = client.Claim(claim);
    ASSERT_EQ(claimed.status(), absl::OkStatus());
    ASSERT_EQ(claimed->jobs.size(), 1u);
    const client::Job& job = claimed->jobs[0].job;
    EXPECT_EQ(job.headers.at("tenure-schedule"), "s");
    ASSERT_EQ(client.Complete({.lease_token = claimed->jobs[0].lease_token}).status(), absl::OkStatus());
  }
  // The first slot may have waited for the scheduler's next look; later ones are on time but for the machine's load.
  EXPECT_EQ(Sql("select max(fired_at - slot) < interval '1 s' from tenure.schedule_run"), "t")
      << Sql("select max(fired_at - slot) from tenure.schedule_run");
  std::string metrics;
  EXPECT_EQ(HttpGet(leader->http_port(), "/metrics", &metrics), 200);
  EXPECT_THAT(metrics, ::testing::ContainsRegex("tenure_schedule_runs_total.outcome=.fired.. [1-9]"));
}

TEST_F(ScheduleDaemonTest, AKilledLeaderIsFollowedWithinALeaseAndNoSlotIsDoubledOrLost) {
  auto first = StartProcess();
  ASSERT_TRUE(Eventually(20, [&] {
    return Sql("select count(*) from tenure.leader where worker = 'scheduler' and expires_at > now()") == "1";
  }));
  auto second = StartProcess();
  client::Client client = Connect(second->grpc_address());
  ASSERT_EQ(client.CreateSchedule("s", EverySecond()).status(), absl::OkStatus());
  ASSERT_TRUE(AwaitRuns(3));
  const int64_t term = std::stoll(Sql("select term from tenure.leader where worker = 'scheduler'"));
  first->Kill();
  const int before = Runs();
  // A lease is 6 s; the rest is the machine's.
  ASSERT_TRUE(AwaitRuns(before + 9, 20));
  EXPECT_GT(std::stoll(Sql("select term from tenure.leader where worker = 'scheduler'")), term);
  EXPECT_EQ(Sql("select max(fired_at - slot) < interval '9 s' from tenure.schedule_run"), "t")
      << Sql("select max(fired_at - slot) from tenure.schedule_run");
  ExpectNoSlotDoubledOrLost();
}

TEST_F(ScheduleDaemonTest, AStoppedLeaderThatComesBackDoublesNothing) {
  auto first = StartProcess();
  ASSERT_TRUE(Eventually(20, [&] {
    return Sql("select count(*) from tenure.leader where worker = 'scheduler' and expires_at > now()") == "1";
  }));
  auto second = StartProcess();
  client::Client client = Connect(second->grpc_address());
  ASSERT_EQ(client.CreateSchedule("s", EverySecond()).status(), absl::OkStatus());
  ASSERT_TRUE(AwaitRuns(2));
  first->Signal(SIGSTOP);
  const int before = Runs();
  ASSERT_TRUE(AwaitRuns(before + 9, 30));
  first->Signal(SIGCONT);
  const int resumed = Runs();
  ASSERT_TRUE(AwaitRuns(resumed + 3, 20));
  ExpectNoSlotDoubledOrLost();
}

TEST_F(ScheduleDaemonTest, WhatWasMissedWhileNoDaemonRanIsCaughtUpToTheCap) {
  {
    const auto daemon = Start("none");
    client::Client client = Connect(daemon->grpc_address());
    client::ScheduleSpec spec = EverySecond();
    spec.interval = 1h;
    spec.catch_up = 2;
    ASSERT_EQ(client.CreateSchedule("s", spec).status(), absl::OkStatus());
  }
  // Down for four slots, the last of them half an hour ago.
  Sql("update tenure.schedule set anchor_at = now() - interval '270 min', next_at = now() - interval '210 min'");
  const auto daemon = Start("all");
  ASSERT_TRUE(AwaitRuns(2));
  client::Client client = Connect(daemon->grpc_address());
  const auto schedule = client.GetSchedule("s");
  ASSERT_EQ(schedule.status(), absl::OkStatus());
  EXPECT_EQ(schedule->fired_total, 2);
  EXPECT_EQ(schedule->skipped_missed_total, 2);
  EXPECT_EQ(Runs(), 2);
}

TEST_F(ScheduleDaemonTest, PauseStopsTheSlotsAndResumeGoesOn) {
  const auto daemon = Start("all");
  client::Client client = Connect(daemon->grpc_address());
  ASSERT_EQ(client.CreateSchedule("s", EverySecond()).status(), absl::OkStatus());
  ASSERT_EQ(client.CreateSchedule("clock", EverySecond()).status(), absl::OkStatus());
  ASSERT_TRUE(Eventually(20, [&] { return client.GetSchedule("s")->fired_total >= 1; }));
  ASSERT_EQ(client.PauseSchedule("s").status(), absl::OkStatus());
  const int64_t paused_at = client.GetSchedule("s")->fired_total;
  const int64_t clock = client.GetSchedule("clock")->fired_total;
  ASSERT_TRUE(Eventually(20, [&] { return client.GetSchedule("clock")->fired_total >= clock + 2; }));
  EXPECT_EQ(client.GetSchedule("s")->fired_total, paused_at);
  ASSERT_EQ(client.ResumeSchedule("s").status(), absl::OkStatus());
  EXPECT_TRUE(Eventually(20, [&] { return client.GetSchedule("s")->fired_total >= paused_at + 2; }));
  EXPECT_EQ(client.GetSchedule("s")->skipped_missed_total, 0);
}

TEST_F(ScheduleDaemonTest, UnderSkipNoSecondJobIsMadeUntilTheFirstHasEnded) {
  const auto daemon = Start("all");
  client::Client client = Connect(daemon->grpc_address());
  client::ScheduleSpec spec = EverySecond();
  spec.overlap_policy = client::OverlapPolicy::kSkip;
  ASSERT_EQ(client.CreateSchedule("s", spec).status(), absl::OkStatus());
  ASSERT_TRUE(Eventually(20, [&] { return client.GetSchedule("s")->skipped_overlap_total >= 2; }));
  EXPECT_EQ(client.GetSchedule("s")->fired_total, 1);
  ASSERT_EQ(client.Cancel(client.GetSchedule("s")->last_job_id).status(), absl::OkStatus());
  EXPECT_TRUE(Eventually(20, [&] { return client.GetSchedule("s")->fired_total >= 2; }));
}

}  // namespace
}  // namespace tenure::testing
