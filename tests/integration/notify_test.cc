// Webhooks from whole daemons: what is sent, again and in the end, whom a bad target holds up (nobody), and what is
// lost when the leader is killed (nothing). Layer: tests.
#include <csignal>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/background/targets/digest.h"
#include "tenure/client.h"
#include "tests/support/daemon.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/http_receiver.h"
#include "tests/support/store_fixture.h"
#include "tests/support/tenurectl.h"

namespace tenure::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSecret[] = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

class NotifyTest : public StoreTest {
 protected:
  std::unique_ptr<TestDaemon> Start(std::vector<std::string> set = {}, bool allow_private = true) {
    TestDaemonOptions options;
    options.database_url = database_.url();
    if (allow_private) options.settings = {{"allow-private-targets", "true"}};
    options.environment = {{"AWS_ACCESS_KEY_ID", "AKID"}, {"AWS_SECRET_ACCESS_KEY", "secret"}};
    set.push_back("notify.poll_interval=20ms");
    options.set = std::move(set);
    return std::make_unique<TestDaemon>(options);
  }
  std::unique_ptr<DaemonProcess> StartProcess() {
    DaemonProcessOptions options;
    options.binary = TENURE_BINARY_DIR "/bin/tenured";
    options.arguments = {"--database-url", database_.url(), "--allow-private-targets"};
    auto daemon = std::make_unique<DaemonProcess>(options);
    EXPECT_TRUE(daemon->AwaitReady()) << daemon->Log();
    return daemon;
  }
  static client::Client Connect(const std::string& address) {
    client::ClientOptions options;
    options.targets = {address};
    return *client::Client::Connect(options);
  }
  static client::TargetSpec Webhook(const std::string& url) {
    client::TargetSpec spec;
    spec.url = url;
    spec.secret = kSecret;
    return spec;
  }
  // Enqueues `count` jobs and cancels them, which ends them; their event ids.
  static std::set<std::string> EndJobs(client::Client& client, int count, const std::string& queue = "q") {
    std::set<std::string> ids;
    for (int i = 0; i < count; ++i) {
      client::JobSpec spec;
      spec.queue = queue;
      spec.kind = "k";
      const auto job = client.Enqueue(spec);
      EXPECT_EQ(job.status(), absl::OkStatus());
      if (!job.ok()) return ids;
      EXPECT_EQ(client.Cancel(job->job_id).status(), absl::OkStatus());
      ids.insert(job->job_id + ".cancelled");
    }
    return ids;
  }
  static std::set<std::string> IdsOf(const std::vector<Received>& requests) {
    std::set<std::string> ids;
    for (const Received& request : requests) ids.insert(request.headers.at("webhook-id"));
    return ids;
  }
  static bool AwaitIds(HttpReceiver& receiver, const std::set<std::string>& ids) {
    return receiver.Await([&](const std::vector<Received>& requests) {
      const std::set<std::string> got = IdsOf(requests);
      return std::includes(got.begin(), got.end(), ids.begin(), ids.end());
    });
  }
};

TEST_F(NotifyTest, AWebhookHearsOfEachEndOnceAndCanTellWhoSends) {
  HttpReceiver receiver;
  const auto daemon = Start();
  client::Client client = Connect(daemon->grpc_address());
  const auto target = client.CreateTarget("hook", Webhook(receiver.url("/events")));
  ASSERT_EQ(target.status(), absl::OkStatus());
  EXPECT_TRUE(target->has_secret);
  EXPECT_EQ(target->spec.secret, "");
  const std::set<std::string> ids = EndJobs(client, 20);
  ASSERT_TRUE(AwaitIds(receiver, ids));
  ASSERT_TRUE(Eventually(20, [&] { return client.GetTarget("hook")->events_total == 20; }));
  const auto requests = receiver.requests();
  EXPECT_EQ(requests.size(), 20u) << "none twice";
  for (const Received& request : requests) {
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.target, "/events");
    EXPECT_EQ(request.headers.at("content-type"), "application/json");
    const std::string& id = request.headers.at("webhook-id");
    const int64_t sent = std::stoll(request.headers.at("webhook-timestamp"));
    EXPECT_LT(std::abs(sent - absl::ToUnixSeconds(absl::Now())), 60);
    EXPECT_EQ(request.headers.at("webhook-signature"),
              background::targets::WebhookSignature(kSecret, id, sent, request.body));
    const auto body = nlohmann::json::parse(request.body);
    EXPECT_EQ(body["id"], id);
    EXPECT_EQ(body["type"], "cancelled");
    EXPECT_EQ(body["job"]["queue"], "q");
    EXPECT_EQ(body["job"]["id"].get<std::string>() + ".cancelled", id);
  }
  std::string metrics;
  EXPECT_EQ(HttpGet(daemon->http_port(), "/metrics", &metrics), 200);
  EXPECT_THAT(metrics, ContainsRegex("tenure_target_events_total.outcome=.accepted.,purpose=.notify.. 20"));
  EXPECT_THAT(metrics, ContainsRegex("tenure_target_request_duration_seconds_count.purpose=.notify.. 20"));
  EXPECT_THAT(metrics, ContainsRegex("tenure_target_lag_seconds.purpose=.notify.. 0"));
  EXPECT_THAT(metrics, Not(HasSubstr("whsec_")));
}

TEST_F(NotifyTest, WhatIsRefusedIsSentAgainThenDeadThenRedriven) {
  std::atomic<bool> accept{false};
  HttpReceiver receiver([&](const Received&) { return Answer{accept ? 200 : 422, "", {}}; });
  const auto daemon = Start({"notify.first_retry=10ms", "notify.max_attempts=3"});
  client::Client client = Connect(daemon->grpc_address());
  ASSERT_EQ(client.CreateTarget("hook", Webhook(receiver.url())).status(), absl::OkStatus());
  const std::set<std::string> ids = EndJobs(client, 2);
  ASSERT_TRUE(Eventually(30, [&] { return client.GetTarget("hook")->dead_deliveries == 2; }));
  EXPECT_EQ(receiver.requests().size(), 6u) << "three attempts each";
  EXPECT_EQ(IdsOf(receiver.requests()), ids);
  const auto page = client.ListDeadDeliveries("hook", 1);
  ASSERT_EQ(page.status(), absl::OkStatus());
  ASSERT_EQ(page->deliveries.size(), 1u);
  EXPECT_EQ(page->deliveries[0].attempts, 3);
  EXPECT_EQ(page->deliveries[0].last_error, "status 422");
  EXPECT_THAT(page->deliveries[0].body, HasSubstr("\"type\":\"cancelled\""));
  const auto rest = client.ListDeadDeliveries("hook", 1, page->next_page_token);
  ASSERT_EQ(rest.status(), absl::OkStatus());
  ASSERT_EQ(rest->deliveries.size(), 1u);
  EXPECT_EQ(rest->next_page_token, "");
  EXPECT_EQ(client.GetTarget("hook")->last_error, "status 422");

  accept = true;
  EXPECT_EQ(*client.RedriveDeliveries("hook"), 2);
  ASSERT_TRUE(Eventually(30, [&] {
    const auto target = client.GetTarget("hook");
    return target->dead_deliveries == 0 && target->waiting_deliveries == 0;
  }));
  EXPECT_EQ(receiver.requests().size(), 8u);
  EXPECT_EQ(client.GetTarget("hook")->last_error, "");
  std::string metrics;
  HttpGet(daemon->http_port(), "/metrics", &metrics);
  EXPECT_THAT(metrics, ContainsRegex("tenure_target_events_total.outcome=.dead.,purpose=.notify.. 2"));
  EXPECT_THAT(metrics, ContainsRegex("tenure_target_events_total.outcome=.refused.,purpose=.notify.. 4"));
}

TEST_F(NotifyTest, ASlowTargetDelaysNobodyElse) {
  HttpReceiver slow, quick;
  slow.Hold();
  const auto daemon = Start({"notify.timeout=1m"});
  client::Client client = Connect(daemon->grpc_address());
  ASSERT_EQ(client.CreateTarget("a-slow", Webhook(slow.url()), /*paused=*/true).status(), absl::OkStatus());
  ASSERT_EQ(client.CreateTarget("b-quick", Webhook(quick.url())).status(), absl::OkStatus());
  std::set<std::string> ids = EndJobs(client, 30);
  ASSERT_EQ(client.ResumeTarget("a-slow").status(), absl::OkStatus());
  ASSERT_TRUE(slow.Await([](const auto& requests) { return !requests.empty(); }));
  for (const std::string& id : EndJobs(client, 5)) ids.insert(id);
  ASSERT_TRUE(AwaitIds(quick, ids));
  // All that it is sent at a time, and not one more.
  ASSERT_TRUE(slow.Await([](const auto& requests) { return requests.size() == 8; }));
  EXPECT_EQ(client.GetTarget("a-slow")->events_total, 0);
  slow.Resume();
  ASSERT_TRUE(AwaitIds(slow, ids));
}

TEST_F(NotifyTest, ATargetThatIsAwayTripsItsBreakerAndItsEventsWaitInTheOutbox) {
  std::atomic<bool> up{false};
  HttpReceiver receiver([&](const Received&) { return Answer{up ? 200 : 503, "", {}}; });
  const auto daemon = Start({"notify.first_retry=10ms"});
  client::Client client = Connect(daemon->grpc_address());
  ASSERT_EQ(client.CreateTarget("hook", Webhook(receiver.url())).status(), absl::OkStatus());
  std::set<std::string> ids = EndJobs(client, 40);
  std::string metrics;
  ASSERT_TRUE(Eventually(20, [&] {
    HttpGet(daemon->http_port(), "/metrics", &metrics);
    return metrics.find("tenure_target_breakers_open{purpose=\"notify\"} 1") != std::string::npos;
  }));
  EXPECT_LE(client.GetTarget("hook")->waiting_deliveries, 20) << "the others were not even tried";
  EXPECT_EQ(client.GetTarget("hook")->last_error, "status 503");
  EXPECT_THAT(metrics, Not(ContainsRegex("tenure_target_lag_seconds.purpose=.notify.. 0\n")));
  up = true;
  // The longest pause is a minute, on a machine that was slow to see it open.
  ASSERT_TRUE(AwaitIds(receiver, ids) || AwaitIds(receiver, ids) || AwaitIds(receiver, ids));
  EXPECT_TRUE(Eventually(20, [&] {
    const auto target = client.GetTarget("hook");
    return target->events_total == 40 && target->waiting_deliveries == 0;
  }));
}

TEST_F(NotifyTest, APrivateAddressIsRefusedUnlessAllowed) {
  HttpReceiver receiver;
  const auto daemon = Start({}, /*allow_private=*/false);
  client::Client client = Connect(daemon->grpc_address());
  ASSERT_EQ(client.CreateTarget("hook", Webhook(absl::StrCat("http://localhost:", receiver.port(), "/"))).status(),
            absl::OkStatus());
  EndJobs(client, 1);
  ASSERT_TRUE(
      Eventually(20, [&] { return client.GetTarget("hook")->last_error.find("not public") != std::string::npos; }));
  EXPECT_TRUE(receiver.requests().empty());
}

TEST_F(NotifyTest, PausedItIsSentNothingAndResumedEverything) {
  HttpReceiver receiver, clock;
  const auto daemon = Start();
  client::Client client = Connect(daemon->grpc_address());
  ASSERT_EQ(client.CreateTarget("hook", Webhook(receiver.url()), /*paused=*/true).status(), absl::OkStatus());
  ASSERT_EQ(client.CreateTarget("clock", Webhook(clock.url())).status(), absl::OkStatus());
  const std::set<std::string> ids = EndJobs(client, 3);
  ASSERT_TRUE(AwaitIds(clock, ids)) << "long enough";
  EXPECT_TRUE(receiver.requests().empty());
  ASSERT_EQ(client.ResumeTarget("hook").status(), absl::OkStatus());
  ASSERT_TRUE(AwaitIds(receiver, ids));
  EXPECT_EQ(receiver.requests().size(), 3u);
  ASSERT_EQ(client.DeleteTarget("hook"), absl::OkStatus());
  ASSERT_TRUE(AwaitIds(clock, EndJobs(client, 1)));
  EXPECT_EQ(receiver.requests().size(), 3u);
}

TEST_F(NotifyTest, AKilledLeaderLosesNoEventAndDoublesAreKnownById) {
  HttpReceiver receiver;
  auto first = StartProcess();
  ASSERT_TRUE(Eventually(20, [&] {
    return Sql("select count(*) from tenure.leader where worker = 'notify' and expires_at > now()") == "1";
  }));
  auto second = StartProcess();
  client::Client client = Connect(second->grpc_address());
  ASSERT_EQ(client.CreateTarget("hook", Webhook(receiver.url())).status(), absl::OkStatus());
  std::set<std::string> ids = EndJobs(client, 50);
  ASSERT_TRUE(receiver.Await([](const auto& requests) { return requests.size() >= 10; }));
  // In the middle of it: some are sent and not yet written down.
  receiver.Hold();
  for (const std::string& id : EndJobs(client, 50)) ids.insert(id);
  first->Kill();
  receiver.Resume();
  for (const std::string& id : EndJobs(client, 10)) ids.insert(id);
  ASSERT_TRUE(AwaitIds(receiver, ids));
  EXPECT_EQ(IdsOf(receiver.requests()), ids);
  EXPECT_TRUE(Eventually(30, [&] {
    const auto target = client.GetTarget("hook");
    return target->events_total == 110 && target->waiting_deliveries == 0;
  }));
}

TEST_F(NotifyTest, AStoppedLeaderThatComesBackMovesNothing) {
  HttpReceiver receiver;
  auto first = StartProcess();
  ASSERT_TRUE(Eventually(20, [&] {
    return Sql("select count(*) from tenure.leader where worker = 'notify' and expires_at > now()") == "1";
  }));
  auto second = StartProcess();
  client::Client client = Connect(second->grpc_address());
  ASSERT_EQ(client.CreateTarget("hook", Webhook(receiver.url())).status(), absl::OkStatus());
  std::set<std::string> ids = EndJobs(client, 5);
  ASSERT_TRUE(AwaitIds(receiver, ids));
  const int64_t term = std::stoll(Sql("select term from tenure.leader where worker = 'notify'"));
  first->Signal(SIGSTOP);
  for (const std::string& id : EndJobs(client, 20)) ids.insert(id);
  ASSERT_TRUE(AwaitIds(receiver, ids)) << "the other one takes over";
  EXPECT_GT(std::stoll(Sql("select term from tenure.leader where worker = 'notify'")), term);
  first->Signal(SIGCONT);
  for (const std::string& id : EndJobs(client, 5)) ids.insert(id);
  ASSERT_TRUE(AwaitIds(receiver, ids));
  EXPECT_TRUE(Eventually(30, [&] { return client.GetTarget("hook")->events_total == 30; }));
  EXPECT_EQ(client.GetTarget("hook")->waiting_deliveries, 0);
}

TEST_F(NotifyTest, TheCommandLineSteersTargets) {
  HttpReceiver receiver([](const Received&) { return Answer{410, "", {}}; });
  const auto daemon = Start({"notify.max_attempts=1"});
  const auto run = [&](const std::string& arguments, const std::string& input = "") {
    return RunTenurectl(daemon->grpc_address(), arguments, input);
  };
  CliRun made = run(absl::StrCat("target create hook -p notify -u ", receiver.url(),
                                 " -q a -q b -e cancelled --secret-file - --description pager"),
                    "a-secret-on-stdin\n");
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("queues         a, b"));
  EXPECT_THAT(made.out, HasSubstr("secret         set"));
  EXPECT_THAT(made.out, Not(HasSubstr("a-secret-on-stdin")));
  EXPECT_THAT(run("target list").out, ContainsRegex("hook +active +notify"));
  EXPECT_EQ(run("target update hook --reset events --description other").status, 0);
  EXPECT_THAT(run("target get hook").out, HasSubstr("completed, discarded, cancelled, expired"));
  EXPECT_EQ(run("target update hook").status, 2);
  CliRun refused = run("target update hook --min-age-days 3");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("spec.min_age_days"));
  EXPECT_EQ(run("target get nobody").status, 1);
  client::Client client = Connect(daemon->grpc_address());
  EndJobs(client, 1, "a");
  ASSERT_TRUE(Eventually(20, [&] { return client.GetTarget("hook")->dead_deliveries == 1; }));
  EXPECT_THAT(run("target dead hook").out, HasSubstr("status 410"));
  EXPECT_THAT(run("target redrive hook").out, HasSubstr("due again: 1"));
  ASSERT_TRUE(Eventually(20, [&] { return client.GetTarget("hook")->dead_deliveries == 1; }));
  EXPECT_THAT(run("target pause hook").out, HasSubstr("(paused)"));
  EXPECT_THAT(run("target resume hook").out, Not(HasSubstr("(paused)")));
  EXPECT_THAT(run("target delete hook").out, HasSubstr("deleted hook"));
  EXPECT_THAT(run("target list").err, HasSubstr("no targets"));
}

TEST_F(NotifyTest, SqsIsSentBatchesAndWhatItRefusesIsSentAgain) {
  std::atomic<int> calls{0};
  HttpReceiver sqs([&](const Received& request) {
    const auto body = nlohmann::json::parse(request.body);
    nlohmann::json answer = {{"Successful", nlohmann::json::array()}, {"Failed", nlohmann::json::array()}};
    const bool first = calls++ == 0;
    for (const auto& entry : body["Entries"]) {
      // The first message of the first call is refused once.
      if (first && entry["Id"] == "0") {
        answer["Failed"].push_back({{"Id", "0"}, {"Code", "InternalError"}, {"SenderFault", false}});
      } else {
        answer["Successful"].push_back({{"Id", entry["Id"]}});
      }
    }
    return Answer{200, answer.dump(), {}};
  });
  const auto daemon = Start({"notify.first_retry=10ms"});
  client::Client client = Connect(daemon->grpc_address());
  client::TargetSpec spec;
  spec.url = absl::StrCat("sqs+", sqs.url("/123/jobs.fifo"));
  spec.region = "eu-west-1";
  ASSERT_EQ(client.CreateTarget("queue", spec, /*paused=*/true).status(), absl::OkStatus());
  const std::set<std::string> ids = EndJobs(client, 25);
  ASSERT_EQ(client.ResumeTarget("queue").status(), absl::OkStatus());
  std::multiset<std::string> sent;
  ASSERT_TRUE(sqs.Await([&](const std::vector<Received>& requests) {
    sent.clear();
    for (const Received& request : requests) {
      const auto body = nlohmann::json::parse(request.body);
      for (const auto& entry : body["Entries"]) {
        sent.insert(entry["MessageDeduplicationId"].get<std::string>());
      }
    }
    return sent.size() >= 26;
  }));
  EXPECT_EQ(std::set<std::string>(sent.begin(), sent.end()), ids);
  const auto requests = sqs.requests();
  size_t most = 0;  // They are sent side by side: any may be the first.
  for (const Received& request : requests) {
    most = std::max(most, nlohmann::json::parse(request.body)["Entries"].size());
  }
  EXPECT_EQ(most, 10u);
  EXPECT_THAT(requests[0].headers.at("authorization"), HasSubstr("Credential=AKID/"));
  EXPECT_THAT(requests[0].headers.at("authorization"), HasSubstr("/eu-west-1/sqs/aws4_request"));
  EXPECT_TRUE(Eventually(20, [&] { return client.GetTarget("queue")->waiting_deliveries == 0; }));
}

}  // namespace
}  // namespace tenure::testing
