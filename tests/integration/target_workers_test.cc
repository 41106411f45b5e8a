// Event logs and relays in whole daemons: what they write, and that nothing is doubled or lost when their leader is
// killed. Layer: tests.
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/base/status.h"
#include "server/store/postgres/connection.h"
#include "tenure/client.h"
#include "tests/support/daemon.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/http_receiver.h"
#include "tests/support/raw_http.h"
#include "tests/support/target_fixture.h"

namespace tenure::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class TargetWorkersTest : public TargetFixture {};
class EventLogTest : public TargetFixture {};
class RelayTest : public TargetFixture {};

// All events of the log; names without gaps.
std::vector<std::string> ReadLog(const std::vector<fs::path>& files) {
  std::vector<std::string> ids;
  int64_t next = 1;
  for (const fs::path& file : files) {
    const std::vector<std::string> range = absl::StrSplit(file.stem().string(), '-');
    EXPECT_EQ(std::stoll(range[0]), next) << file;
    const std::vector<std::string> lines = absl::StrSplit(ReadFile(file), '\n', absl::SkipEmpty());
    EXPECT_EQ(std::stoll(range[1]), next + static_cast<int64_t>(lines.size()) - 1) << file;
    next += static_cast<int64_t>(lines.size());
    for (const std::string& line : lines) ids.push_back(nlohmann::json::parse(line)["job"]["id"]);
  }
  return ids;
}

TEST_F(EventLogTest, WritesEventsInOrderOneObjectAFlush) {
  const auto daemon = Start({"event-log.batch=4"});
  client::Client client = Connect(daemon->grpc_address());
  client::TargetSpec spec = Spec(client::TargetPurpose::kEventLog);
  spec.interval = 1s;
  ASSERT_EQ(client.CreateTarget("log", spec, /*paused=*/true).status(), absl::OkStatus());
  std::vector<std::string> ids = EndJobs(client, 10);
  ASSERT_EQ(client.ResumeTarget("log").status(), absl::OkStatus());
  ASSERT_TRUE(Eventually(20, [&] { return client.GetTarget("log")->events_total == 10; }));
  EXPECT_EQ(Files("/events/").size(), 3u) << "at most four each";
  EXPECT_EQ(ReadLog(Files("/events/")), ids);
  for (const std::string& id : EndJobs(client, 2)) ids.push_back(id);
  ASSERT_TRUE(Eventually(20, [&] { return client.GetTarget("log")->events_total == 12; }));
  EXPECT_EQ(ReadLog(Files("/events/")), ids);
  std::string metrics;
  HttpGet(daemon->http_port(), "/metrics", &metrics);
  EXPECT_THAT(metrics, ContainsRegex("tenure_target_objects_total.outcome=.written.,purpose=.event-log.. [4-9]"));
  EXPECT_THAT(metrics, ContainsRegex("tenure_target_events_total.outcome=.accepted.,purpose=.event-log.. 12"));
}

TEST_F(EventLogTest, ADirectoryThatTheDaemonMayNotWriteToIsRefusedWhenTheTargetIsMade) {
  const auto daemon = Start();
  client::Client client = Connect(daemon->grpc_address());
  client::TargetSpec spec = Spec(client::TargetPurpose::kEventLog);
  const std::string good = spec.url;
  for (const std::string& url : {std::string("file:///somewhere-else"), good + "-beside"}) {
    spec.url = url;
    const auto refused = client.CreateTarget("log", spec);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(std::string(refused.status().message()), ContainsRegex("spec.url.*--target-directory"));
  }
  spec.url = good + "/below";
  ASSERT_EQ(client.CreateTarget("log", spec).status(), absl::OkStatus());
  client::TargetChange change;
  change.url = "file:///somewhere-else";
  EXPECT_EQ(client.UpdateTarget("log", change).status().code(), absl::StatusCode::kInvalidArgument);
  change.url = good;
  EXPECT_EQ(client.UpdateTarget("log", change).status(), absl::OkStatus());
}

TEST_F(EventLogTest, ATargetThatCannotBeWrittenSaysSoAndHoldsNobodyUp) {
  const auto daemon = Start();
  client::Client client = Connect(daemon->grpc_address());
  client::TargetSpec bad = Spec(client::TargetPurpose::kEventLog), good = bad;
  bad.interval = good.interval = 1s;
  std::ofstream(folder_ + "/taken") << "a file, where a directory is wanted";
  bad.url = "file://" + folder_ + "/taken/here";
  ASSERT_EQ(client.CreateTarget("bad", bad).status(), absl::OkStatus());
  ASSERT_EQ(client.CreateTarget("good", good).status(), absl::OkStatus());
  EndJobs(client, 3);
  ASSERT_TRUE(Eventually(20, [&] { return client.GetTarget("good")->events_total == 3; }));
  ASSERT_TRUE(Eventually(20, [&] { return absl::StrContains(client.GetTarget("bad")->last_error, "/taken"); }));
  std::string metrics;
  ASSERT_TRUE(Eventually(20, [&] {
    HttpGet(daemon->http_port(), "/metrics", &metrics);
    return absl::StrContains(metrics, "tenure_target_breakers_open{purpose=\"event-log\"} 1");
  }));
  client::TargetChange mended;
  mended.url = good.url;
  ASSERT_EQ(client.UpdateTarget("bad", mended).status(), absl::OkStatus());
  EXPECT_TRUE(Eventually(20, [&] { return client.GetTarget("bad")->events_total == 3; }));
}

TEST_F(EventLogTest, AKilledLeaderLeavesNeitherGapsNorDoubles) {
  auto first = StartProcess();
  ASSERT_TRUE(Eventually(20, [&] {
    return Sql("select count(*) from tenure.leader where worker = 'event-log' and expires_at > now()") == "1";
  }));
  auto second = StartProcess();
  client::Client client = Connect(second->grpc_address());
  client::TargetSpec spec = Spec(client::TargetPurpose::kEventLog);
  spec.interval = 1s;
  ASSERT_EQ(client.CreateTarget("log", spec).status(), absl::OkStatus());
  std::vector<std::string> ids = EndJobs(client, 100);
  ASSERT_TRUE(Eventually(30, [&] { return !Files("/events/").empty(); }));
  first->Kill();
  for (const std::string& id : EndJobs(client, 50)) ids.push_back(id);
  ASSERT_TRUE(Eventually(40, [&] { return client.GetTarget("log")->events_total == 150; }));
  EXPECT_EQ(ReadLog(Files("/events/")), ids);
}

TEST_F(TargetWorkersTest, ATargetThatHangsHoldsUpNoOther) {
  HttpReceiver silent;
  silent.Hold();
  auto daemon = Start();
  client::Client client = Connect(daemon->grpc_address());
  for (const auto purpose :
       {client::TargetPurpose::kEventLog, client::TargetPurpose::kExport, client::TargetPurpose::kInventory}) {
    client::TargetSpec good = Spec(purpose), bad = good;
    if (purpose == client::TargetPurpose::kEventLog) good.interval = bad.interval = 1s;
    if (purpose == client::TargetPurpose::kInventory) good.queues = bad.queues = {"q"};
    bad.url = "s3://bucket/prefix";
    bad.endpoint = absl::StrCat("http://127.0.0.1:", silent.port());
    const std::string name = absl::StrCat(static_cast<int>(purpose));
    ASSERT_EQ(client.CreateTarget("a-bad-" + name, bad).status(), absl::OkStatus());
    ASSERT_EQ(client.CreateTarget("good-" + name, good).status(), absl::OkStatus());
  }
  EndJobs(client, 1);
  // Only now: without an export target such a day would be dropped.
  Sql("select tenure.ensure_day(tenure.today() - 40)");
  Sql("update tenure.history set ended_on = ended_on - 40");
  EndJobs(client, 1);
  // Each of the three hangs by now, a minute long.
  ASSERT_TRUE(silent.Await([](const auto& requests) { return requests.size() >= 3; }));
  EXPECT_TRUE(Eventually(20, [&] { return !Files("/events/").empty(); }));
  EXPECT_TRUE(Eventually(20, [&] { return Files("/history/").size() == 2; }));
  EXPECT_TRUE(Eventually(20, [&] { return !Files("/inventory/").empty(); }));
  EndJobs(client, 1);
  EXPECT_TRUE(Eventually(20, [&] { return client.GetTarget("good-2")->events_total >= 2; })) << "and goes on";
  EXPECT_EQ(client.GetTarget("a-bad-2")->events_total, 0);
  // The daemon stops though they hang.
  const auto began = std::chrono::steady_clock::now();
  daemon.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
}

TEST_F(RelayTest, APeerThatHangsHoldsUpNoOther) {
  ScopedDatabase peer_database(MigratedTemplate());
  TestDaemonOptions peer_options;
  peer_options.database_url = peer_database.url();
  TestDaemon peer(peer_options);
  HttpReceiver silent;
  silent.Hold();
  const auto daemon = Start({"relay.timeout=1m"});
  client::Client client = Connect(daemon->grpc_address());
  client::TargetSpec spec;
  spec.purpose = client::TargetPurpose::kRelay;
  spec.url = silent.url("");
  spec.queues = {"stuck"};
  ASSERT_EQ(client.CreateTarget("a-silent", spec).status(), absl::OkStatus());
  Enqueue(client, "stuck");
  ASSERT_TRUE(silent.Await([](const auto& requests) { return !requests.empty(); }));
  spec.url = absl::StrCat("http://127.0.0.1:", peer.http_port());
  spec.queues = {"orders"};
  ASSERT_EQ(client.CreateTarget("peer", spec).status(), absl::OkStatus());
  for (int i = 0; i < 3; ++i) {
    const std::string id = Enqueue(client, "orders");
    ASSERT_TRUE(Eventually(20, [&] { return client.Get(id)->state == client::JobState::kCompleted; }));
  }
}

TEST_F(RelayTest, AKilledLeaderLosesAndDoublesNoJob) {
  ScopedDatabase peer_database(MigratedTemplate());
  TestDaemonOptions peer_options;
  peer_options.database_url = peer_database.url();
  TestDaemon peer(peer_options);
  auto first = StartProcess();
  ASSERT_TRUE(AwaitLeader("relay"));
  auto second = StartProcess();
  client::Client client = Connect(second->grpc_address());
  client::TargetSpec spec;
  spec.purpose = client::TargetPurpose::kRelay;
  spec.url = absl::StrCat("http://127.0.0.1:", peer.http_port());
  spec.queues = {"orders"};
  ASSERT_EQ(client.CreateTarget("peer", spec).status(), absl::OkStatus());
  std::set<std::string> payloads;
  for (int i = 0; i < 60; ++i) {
    if (i == 30) {
      ASSERT_TRUE(Eventually(20, [&] { return Sql("select count(*) > 0 from tenure.history") == "t"; }));
      first->Kill();
    }
    payloads.insert(absl::StrCat("{\"n\": ", i, "}"));
    Enqueue(client, "orders", absl::StrCat("{\"n\": ", i, "}"));
  }
  // What the killed one held comes back when its leases run out.
  Sql("update tenure.job set lease_until = now() where state = 4");
  ASSERT_TRUE(Eventually(60, [&] { return Sql("select count(*) from tenure.history where state = 6") == "60"; }))
      << Sql("select count(*) from tenure.history where state = 6");
  client::Client there = Connect(peer.grpc_address());
  std::multiset<std::string> arrived;
  for (const auto& job : there.ListAll({.queue = "orders", .include_payloads = true})) {
    ASSERT_EQ(job.status(), absl::OkStatus());
    arrived.insert(job->payload.data);
  }
  EXPECT_EQ(arrived, std::multiset<std::string>(payloads.begin(), payloads.end()));
}

TEST_F(RelayTest, JobsArriveOnceThoughAnswersAreLost) {
  // The peer, behind something that loses the answer of the first call: the job is there, and nobody knows.
  ScopedDatabase peer_database(MigratedTemplate());
  TestDaemonOptions peer_options;
  peer_options.database_url = peer_database.url();
  TestDaemon peer(peer_options);
  std::atomic<int> calls{0};
  HttpReceiver lossy([&](const Received& request) {
    const int call = ++calls;
    if (call == 2) return Answer{503, "{}", {}};  // Not even passed on.
    RawHttp http(static_cast<uint16_t>(peer.http_port()));
    const RawReply reply = http.Post(request.target, "Content-Type: application/json\r\n", request.body);
    if (call == 1) return Answer{502, "lost", {}};
    return Answer{reply.status, reply.body, {}};
  });
  const auto daemon = Start();
  client::Client client = Connect(daemon->grpc_address());
  client::TargetSpec spec;
  spec.purpose = client::TargetPurpose::kRelay;
  spec.url = lossy.url("");
  spec.queues = {"orders"};
  spec.secret = "a-token-of-the-peer";
  std::set<std::string> payloads;
  std::vector<std::string> ids;
  for (int i = 0; i < 30; ++i) {
    payloads.insert(absl::StrCat("{\"n\": ", i, "}"));
    ids.push_back(Enqueue(client, "orders", absl::StrCat("{\"n\": ", i, "}")));
  }
  Enqueue(client, "others");
  ASSERT_EQ(client.CreateTarget("peer", spec).status(), absl::OkStatus());
  ASSERT_TRUE(Eventually(60, [&] { return Sql("select count(*) from tenure.history where state = 6") == "30"; }));
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "1") << "other queues stay";
  EXPECT_EQ(lossy.requests()[0].headers.at("authorization"), "Bearer a-token-of-the-peer");
  client::Client there = Connect(peer.grpc_address());
  const auto list = there.List({.queue = "orders", .include_payloads = true}, 100);
  ASSERT_EQ(list.status(), absl::OkStatus());
  EXPECT_EQ(list->jobs.size(), 30u) << "none twice";
  std::set<std::string> arrived, there_ids;
  for (const client::Job& job : list->jobs) {
    arrived.insert(job.payload.data);
    there_ids.insert(job.id);
  }
  EXPECT_EQ(arrived, payloads);
  const auto done = client.Get(ids[0]);
  ASSERT_EQ(done.status(), absl::OkStatus());
  ASSERT_TRUE(done->result.has_value());
  EXPECT_TRUE(there_ids.contains(nlohmann::json::parse(done->result->data)["peerJobId"].get<std::string>()));
  std::string metrics;
  HttpGet(daemon->http_port(), "/metrics", &metrics);
  EXPECT_THAT(metrics, ContainsRegex("tenure_target_events_total.outcome=.accepted.,purpose=.relay.. 30"));
  EXPECT_THAT(metrics, ContainsRegex("tenure_target_events_total.outcome=.refused.,purpose=.relay.. [1-9]"));
}

}  // namespace
}  // namespace tenure::testing
