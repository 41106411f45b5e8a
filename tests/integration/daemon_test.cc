// The daemon as a whole: in this process, and as the real program with its signals, its exit statuses and its deaths.
// Layer: tests.
#include "tests/support/daemon.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/background/registry.h"
#include "server/background/supervisor.h"
#include "server/base/status.h"
#include "tests/support/eventually.h"
#include "tests/support/raw_http.h"

namespace tenure {
namespace {

using testing::DaemonProcess;
using testing::DaemonProcessOptions;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::HttpGet;
using ::testing::Not;
using testing::RawHttp;
using testing::TestDaemon;

std::string Call(int port, const std::string& path, const std::string& body) {
  RawHttp http(static_cast<uint16_t>(port));
  const auto reply = http.Post("/tenure.v1." + path, "Content-Type: application/json\r\n", body);
  return absl::StrCat(reply.status, " ", reply.body);
}

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    scratch_ = (std::filesystem::temp_directory_path() / "tenure-daemon-test-XXXXXX").string();
    if (mkdtemp(scratch_.data()) == nullptr) ADD_FAILURE() << "no temporary directory";
    std::filesystem::permissions(scratch_, std::filesystem::perms(0755));
  }
  ~DaemonTest() override { std::filesystem::remove_all(scratch_); }

  DaemonProcessOptions Options(std::vector<std::string> arguments = {}) const {
    DaemonProcessOptions options;
    options.binary = TENURE_BINARY_DIR "/bin/tenured";
    options.arguments = std::move(arguments);
    return options;
  }
  DaemonProcessOptions Embedded() const { return Options({"--data-dir", scratch_ + "/data"}); }

  std::string scratch_;
};

TEST_F(DaemonTest, ServesBothPortsAndStops) {
  TestDaemon daemon;
  EXPECT_EQ(HttpGet(daemon.http_port(), "/livez"), 200);
  EXPECT_EQ(HttpGet(daemon.http_port(), "/readyz"), 200);
  const std::string answer =
      Call(daemon.http_port(), "JobService/Enqueue", R"({"jobs":[{"queue":"q","kind":"k","payload":{"text":"x"}}]})");
  EXPECT_THAT(answer, HasSubstr("200 "));
  EXPECT_THAT(answer, HasSubstr("jobId"));
  std::string metrics;
  EXPECT_EQ(HttpGet(daemon.http_port(), "/metrics", &metrics), 200);
  EXPECT_THAT(metrics, HasSubstr("tenure_background_leader{worker=\"reaper\"}"));
  const int port = daemon.http_port();
  daemon.Stop();
  EXPECT_EQ(HttpGet(port, "/livez"), 0);
}

TEST_F(DaemonTest, BackgroundWorkersThatNobodyLeadsAreListedToo) {
  const testing::ScopedDatabase database;
  DaemonProcess daemon(Options({"--database-url", database.url(), "--migrate", "--background", "none"}));
  ASSERT_TRUE(daemon.AwaitReady()) << daemon.Log();
  const std::string list = Call(daemon.http_port(), "AdminService/ListBackgroundWorkers", "{}");
  for (const background::WorkerEntry& entry : background::AllWorkers())
    EXPECT_THAT(list, HasSubstr(absl::StrCat("\"name\":\"", std::string(entry.name), "\"")));
  EXPECT_THAT(list, Not(HasSubstr("leader")));
}

TEST_F(DaemonTest, MigrateStatusLooksAtTheDatabaseOfADaemonAtWork) {
  DaemonProcess daemon(Embedded());
  ASSERT_TRUE(daemon.AwaitReady()) << daemon.Log();
  const std::string command =
      absl::StrCat(TENURE_BINARY_DIR "/bin/tenured migrate status --data-dir ", scratch_, "/data 2>&1");
  FILE* status = popen(command.c_str(), "r");
  ASSERT_NE(status, nullptr);
  std::string output;
  for (int c = fgetc(status); c != EOF; c = fgetc(status)) output.push_back(static_cast<char>(c));
  EXPECT_EQ(pclose(status), 0) << output;
  EXPECT_THAT(output, HasSubstr("initial"));
  EXPECT_EQ(HttpGet(daemon.http_port(), "/readyz"), 200);
}

TEST_F(DaemonTest, TwoReplicasShareTheLeadersAndOneTakesOver) {
  TestDaemon first;
  testing::TestDaemonOptions options;
  options.database_url = first.database_url();
  TestDaemon second(options);
  // Of the workers with one leader, and of those that all replicas share by shard.
  const auto leading = [](TestDaemon& daemon, background::Leadership leadership) {
    size_t count = 0;
    const auto states = daemon->supervisor().States();
    for (const background::WorkerEntry& entry : background::AllWorkers()) {
      if (entry.leadership != leadership) continue;
      count += std::any_of(states.begin(), states.end(),
                           [&](const auto& state) { return state.name == entry.name && state.leading; });
    }
    return count;
  };
  constexpr auto kLed = background::Leadership::kOuterLease, kShared = background::Leadership::kOwnLeases;
  const auto states = first->supervisor().States().size();
  EXPECT_TRUE(Eventually(30, [&] {
    const size_t led = leading(first, kLed) + leading(second, kLed), shared = leading(first, kShared);
    return shared == leading(second, kShared) && led + shared == states;
  }));
  first.Stop();
  EXPECT_TRUE(Eventually(30, [&] { return leading(second, kLed) + leading(second, kShared) == states; }));
}

TEST_F(DaemonTest, RunsNoBackgroundWorkerWhenToldSo) {
  testing::TestDaemonOptions options;
  options.settings = {{"background", "none"}};
  TestDaemon daemon(options);
  EXPECT_TRUE(daemon->supervisor().States().empty());
  EXPECT_EQ(HttpGet(daemon.http_port(), "/readyz"), 200) << "a warning, not a failure";
}

TEST_F(DaemonTest, StartsBeforeItsDatabaseAndMigratesWhenItComes) {
  // A port that nobody listens on stands for a database that is away.
  DaemonProcess away(Options({"--database-url", "postgres://u:secret@127.0.0.1:1/d", "--migrate"}));
  ASSERT_TRUE(away.AwaitServing()) << away.Log();
  std::string body;
  EXPECT_EQ(HttpGet(away.http_port(), "/livez"), 200);
  EXPECT_EQ(HttpGet(away.http_port(), "/readyz", &body), 503);
  EXPECT_THAT(Call(away.http_port(), "JobService/Enqueue", R"({"jobs":[{"queue":"q","kind":"k"}]})"),
              HasSubstr("DATABASE_UNAVAILABLE"));
  EXPECT_THAT(away.Log(), Not(HasSubstr("secret")));
  away.Signal(SIGTERM);
  EXPECT_EQ(away.Wait(), 0) << away.Log();

  const testing::ScopedDatabase empty;
  DaemonProcess unmigrated(Options({"--database-url", empty.url()}));
  ASSERT_TRUE(unmigrated.AwaitServing()) << unmigrated.Log();
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  do {
    EXPECT_EQ(HttpGet(unmigrated.http_port(), "/readyz", &body), 503);
  } while (body.find("tenured migrate up") == std::string::npos && absl::Now() < deadline);
  EXPECT_THAT(body, HasSubstr("tenured migrate up"));
  unmigrated.Kill();

  DaemonProcess migrating(Options({"--database-url", empty.url(), "--migrate"}));
  EXPECT_TRUE(migrating.AwaitReady()) << migrating.Log();
}

TEST_F(DaemonTest, PrintsCommandsToCopyWhenReady) {
  const testing::ScopedDatabase database;
  DaemonProcess daemon(Options({"--database-url", database.url(), "--migrate"}));
  ASSERT_TRUE(daemon.AwaitReady()) << daemon.Log();
  EXPECT_TRUE(daemon.AwaitText(" top\n"));
  const std::string output = daemon.Output();
  EXPECT_THAT(output, HasSubstr(absl::StrCat("tenurectl --server ", daemon.grpc_address(), " job enqueue")));
  EXPECT_THAT(output, HasSubstr(" work -q demo --exec"));
  EXPECT_THAT(output, HasSubstr(" top\n"));
}

TEST_F(DaemonTest, WrongUsageEndsWithStatusTwoBeforeAnythingIsTouched) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--background", "repaer"}, "reaper"},
      {{"--set", "promoter.batch=0"}, "promoter.batch"},
      {{"--no-such-flag"}, "--no-such-flag"},
      {{"--config", "/nonexistent"}, "/nonexistent"},
      {{"--log-level", "loud"}, "--log-level"}};
  for (const auto& [arguments, names] : wrong) {
    std::vector<std::string> all = {"--data-dir", scratch_ + "/data"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    DaemonProcess daemon(Options(all));
    EXPECT_EQ(daemon.Wait(), 2) << arguments[0];
    EXPECT_THAT(daemon.Log() + daemon.Output(), HasSubstr(names));
  }
  DaemonProcessOptions exposed = Embedded();
  exposed.grpc_listen = "0.0.0.0:0";
  DaemonProcess daemon(exposed);
  EXPECT_EQ(daemon.Wait(), 2);
  EXPECT_THAT(daemon.Log(), HasSubstr("--allow-unauthenticated"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ + "/data"));
}

TEST_F(DaemonTest, APortInUseEndsWithStatusOneAndWords) {
  TestDaemon other;
  for (const bool grpc : {true, false}) {
    DaemonProcessOptions options = Embedded();
    (grpc ? options.grpc_listen : options.http_listen) =
        absl::StrCat("127.0.0.1:", grpc ? other->grpc_port() : other->http_port());
    DaemonProcess daemon(options);
    EXPECT_EQ(daemon.Wait(), 1);
    EXPECT_THAT(daemon.Log(), HasSubstr(grpc ? "--grpc-listen" : "--http-listen"));
    EXPECT_THAT(daemon.Log(), HasSubstr("another tenured"));
  }
  EXPECT_FALSE(std::filesystem::exists(scratch_ + "/data")) << "before PostgreSQL was started";
}

TEST_F(DaemonTest, TheEmbeddedDatabaseOutlivesAKillAndEndsWithAStop) {
  std::string id;
  {
    DaemonProcess daemon(Embedded());
    ASSERT_TRUE(daemon.AwaitReady()) << daemon.Log();
    id = Call(daemon.http_port(), "JobService/Enqueue", R"({"jobs":[{"queue":"q","kind":"k"}]})");
    ASSERT_THAT(id, HasSubstr("jobId"));
    daemon.Kill();
  }
  DaemonProcess daemon(Embedded());
  ASSERT_TRUE(daemon.AwaitReady()) << daemon.Log();
  EXPECT_THAT(daemon.Log(), HasSubstr("took over"));
  EXPECT_THAT(Call(daemon.http_port(), "JobService/List", R"({"queue":"q"})"), HasSubstr("\"kind\":\"k\""));
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0) << daemon.Log();
  EXPECT_FALSE(std::filesystem::exists(scratch_ + "/data/postgres/postmaster.pid"));
}

TEST_F(DaemonTest, APausedReplicaIsFollowedWithinALeaseAndDoesNotComeBack) {
  const testing::ScopedDatabase database;
  DaemonProcess paused(Options({"--database-url", database.url(), "--migrate", "--replica-name", "paused"}));
  ASSERT_TRUE(paused.AwaitReady()) << paused.Log();
  const auto led_by = [&](DaemonProcess& asked, const std::string& name) {
    const std::string list = Call(asked.http_port(), "AdminService/ListBackgroundWorkers", "{}");
    const std::string mark = absl::StrCat("\"leader\":\"", name, "\"");
    size_t count = 0;
    for (size_t at = list.find(mark); at != std::string::npos; at = list.find(mark, at + 1)) ++count;
    return count;
  };
  const size_t all = background::AllWorkers().size();
  ASSERT_TRUE(Eventually(20, [&] { return led_by(paused, "paused") == all; }));
  DaemonProcess other(Options({"--database-url", database.url(), "--replica-name", "other"}));
  ASSERT_TRUE(other.AwaitReady()) << other.Log();
  paused.Signal(SIGSTOP);
  // A lease of six seconds, and a look at it twice a second.
  EXPECT_TRUE(Eventually(15, [&] { return led_by(other, "other") == all; }));
  paused.Signal(SIGCONT);
  EXPECT_TRUE(paused.AwaitText("leader lease")) << "it notices that its terms are over\n" << paused.Log();
  EXPECT_EQ(led_by(other, "other"), all);
  // What it had under way is refused or does nothing; it serves again by itself.
  EXPECT_TRUE(paused.AwaitReady()) << paused.Log();
  EXPECT_EQ(led_by(other, "other"), all);
}

TEST_F(DaemonTest, ParkedPollsAreAnsweredWhenItStops) {
  const testing::ScopedDatabase database;
  DaemonProcess daemon(Options({"--database-url", database.url(), "--migrate"}));
  ASSERT_TRUE(daemon.AwaitReady()) << daemon.Log();
  RawHttp parked(static_cast<uint16_t>(daemon.http_port()));
  const std::string body = R"({"workerId":"w","queues":[{"queue":"q"}],"maxJobs":1,"wait":"55s"})";
  ASSERT_TRUE(parked.SendRequest("POST", "/tenure.v1.WorkerService/Claim", "Content-Type: application/json\r\n", body));
  // Until it is parked.
  std::string metrics;
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  do {
    HttpGet(daemon.http_port(), "/metrics", &metrics);
  } while (metrics.find("tenure_polls_parked{kind=\"claim\"} 1") == std::string::npos && absl::Now() < deadline);
  ASSERT_THAT(metrics, HasSubstr("tenure_polls_parked{kind=\"claim\"} 1"));
  const absl::Time began = absl::Now();
  daemon.Signal(SIGTERM);
  const auto reply = parked.Read();
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(daemon.Wait(), 0) << daemon.Log();
  EXPECT_LT(absl::Now() - began, absl::Seconds(15));
}

TEST_F(DaemonTest, ASecondSignalEndsAtOnce) {
  const testing::ScopedDatabase database;
  DaemonProcess daemon(Options({"--database-url", database.url(), "--migrate"}));
  ASSERT_TRUE(daemon.AwaitReady()) << daemon.Log();
  // A request whose body never ends holds the first stop up.
  RawHttp slow(static_cast<uint16_t>(daemon.http_port()));
  ASSERT_TRUE(
      slow.Send("POST /tenure.v1.JobService/Enqueue HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
                "application/json\r\nContent-Length: 100\r\n\r\n{"));
  daemon.Signal(SIGINT);
  daemon.AwaitText("draining");  // False if it was so quick that it has ended.
  daemon.Signal(SIGINT);
  const std::optional<int> status = daemon.Wait();
  // It may have been quicker than the second signal.
  EXPECT_TRUE(status == 130 || status == 0) << status.value_or(-1);
}

}  // namespace
}  // namespace tenure
