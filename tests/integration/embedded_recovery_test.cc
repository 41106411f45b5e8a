// The embedded PostgreSQL through what befalls it in the field: kill -9 of the daemon, of the server and of initdb, and
// what these leave behind. Runs as root and as an ordinary user. Layer: tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libpq-fe.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/embedded/postgres.h"
#include "server/embedded/postmaster_file.h"
#include "tests/support/embedded_fixture.h"

namespace tenure::embedded {
namespace {

using ::testing::ElementsAre;

using EmbeddedRecoveryTest = EmbeddedPostgresTest;

TEST_F(EmbeddedRecoveryTest, AdoptsTheServerOfAKilledDaemon) {
  auto daemon = StartDaemon();
  const auto before = FindPostmaster(Cluster());
  ASSERT_NE(before, nullptr);
  daemon->Kill();

  const auto start = std::chrono::steady_clock::now();
  auto postgres = MustStart();
  ASSERT_NE(postgres, nullptr);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_TRUE(postgres->adopted());
  EXPECT_EQ(postgres->postmaster_pid(), before->pid());
  EXPECT_EQ(Query(postgres->url(), "SELECT answer FROM kept"), "42");
  EXPECT_THAT(Postmasters(Cluster()), ElementsAre(before->pid()));

  EXPECT_TRUE(postgres->Stop(absl::Seconds(30)).ok());
  EXPECT_FALSE(postgres->running());
  EXPECT_FALSE(before->Running());
}

TEST_F(EmbeddedRecoveryTest, RecoversWhenDaemonAndServerWereKilled) {
  auto daemon = StartDaemon();
  const auto postmaster = FindPostmaster(Cluster());
  ASSERT_NE(postmaster, nullptr);
  const auto file = ReadPostmasterFile(Cluster());
  // A backend that computes does not notice for long that its postmaster is gone.
  const Connection busy =
      Connect(absl::StrCat("host=", file->socket_dir, " port=", file->port, " user=tenure dbname=tenure"));
  ASSERT_EQ(PQsendQuery(busy.get(), "SELECT count(*) FROM generate_series(1, 1000000000000)"), 1)
      << PQerrorMessage(busy.get());
  PQflush(busy.get());
  daemon->Kill();
  ASSERT_TRUE(postmaster->Signal(SIGKILL).ok());
  ASSERT_TRUE(postmaster->WaitForExit(absl::Seconds(10)));

  auto postgres = MustStart();
  ASSERT_NE(postgres, nullptr);
  EXPECT_FALSE(postgres->adopted());
  EXPECT_EQ(Query(postgres->url(), "SELECT answer FROM kept"), "42");
  EXPECT_THAT(Postmasters(Cluster()), ElementsAre(postgres->postmaster_pid()));
}

TEST_F(EmbeddedRecoveryTest, ReplacesALiveServerWhoseSocketIsGone) {
  auto daemon = StartDaemon();
  const auto before = FindPostmaster(Cluster());
  ASSERT_NE(before, nullptr);
  fs::remove_all(ReadPostmasterFile(Cluster())->socket_dir);
  daemon->Kill();
  auto postgres = MustStart();
  ASSERT_NE(postgres, nullptr);
  EXPECT_FALSE(postgres->adopted());
  EXPECT_EQ(Query(postgres->url(), "SELECT answer FROM kept"), "42");
  EXPECT_THAT(Postmasters(Cluster()), ElementsAre(postgres->postmaster_pid()));
}

TEST_F(EmbeddedRecoveryTest, StartsOverAStalePidOfALiveStranger) {
  MustStart().reset();
  const auto stranger = StartStranger();
  for (const std::string& rest :
       {absl::StrCat("\n", Cluster(), "\n1700000000\n5432\n/tmp\n\n  1234567   1\nready   \n"), std::string("\n"),
        std::string()}) {
    WriteFile(Cluster() + "/postmaster.pid", absl::StrCat(stranger->pid(), rest));
    auto postgres = MustStart();
    ASSERT_NE(postgres, nullptr);
    EXPECT_FALSE(postgres->adopted());
    EXPECT_EQ(kill(stranger->pid(), 0), 0) << "left alone";
  }
}

TEST_F(EmbeddedRecoveryTest, StartsOverAStalePidOfAnotherClustersServer) {
  MustStart().reset();
  Options other = options_;
  other.data_dir = directory_ + "/other";
  auto neighbour = Postgres::Start(other);
  ASSERT_TRUE(neighbour.ok()) << neighbour.status();
  fs::copy_file((*neighbour)->cluster_dir() + "/postmaster.pid", Cluster() + "/postmaster.pid");
  auto postgres = MustStart();
  ASSERT_NE(postgres, nullptr);
  EXPECT_FALSE(postgres->adopted());
  EXPECT_NE(postgres->postmaster_pid(), (*neighbour)->postmaster_pid());
  EXPECT_TRUE((*neighbour)->running());
}

TEST_F(EmbeddedRecoveryTest, StartsOverAnEmptyOrGarbledPidFile) {
  MustStart().reset();
  for (const std::string text : {"", "\n", "garbage\n"}) {
    WriteFile(Cluster() + "/postmaster.pid", text);
    EXPECT_NE(MustStart(), nullptr) << "pid file: " << text;
  }
}

TEST_F(EmbeddedRecoveryTest, ClearsAHalfMadeCluster) {
  fs::create_directories(options_.data_dir + "/initdb-abcdef/base");
  WriteFile(options_.data_dir + "/initdb-abcdef/PG_VERSION", "15\n");
  const auto unfinished = [this] {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(options_.data_dir)) {
      if (absl::StartsWith(entry.path().filename().string(), "initdb-")) ++count;
    }
    return count;
  };
  // A daemon that is killed in the middle of initdb.
  const pid_t pid = fork();
  if (pid == 0) {
    const auto ignored = Postgres::Start(options_);
    _exit(ignored.ok() ? 1 : 2);
  }
  ASSERT_TRUE(Eventually([this] {
    for (const auto& entry : fs::directory_iterator(options_.data_dir)) {
      if (entry.path().filename() != "initdb-abcdef" && fs::exists(entry.path() / "PG_VERSION")) return true;
    }
    return false;
  }));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  EXPECT_FALSE(fs::exists(Cluster()));
  EXPECT_EQ(unfinished(), 1);

  auto postgres = MustStart();
  ASSERT_NE(postgres, nullptr);
  EXPECT_EQ(unfinished(), 0);
  EXPECT_EQ(Query(postgres->url(), "SELECT 1"), "1");
}

TEST_F(EmbeddedRecoveryTest, NoticesThatTheServerDied) {
  auto postgres = MustStart();
  ASSERT_NE(postgres, nullptr);
  EXPECT_FALSE(postgres->WaitForExit(absl::ZeroDuration()));
  kill(postgres->postmaster_pid(), SIGKILL);
  EXPECT_TRUE(postgres->WaitForExit(absl::Seconds(10)));
  EXPECT_FALSE(postgres->running());
  postgres.reset();
  EXPECT_NE(MustStart(), nullptr);
}

TEST_F(EmbeddedRecoveryTest, StopsAtOnceWhenAFastShutdownHangs) {
  auto postgres = MustStart();
  ASSERT_NE(postgres, nullptr);
  Query(postgres->url(), "CREATE TABLE kept AS SELECT 1 AS answer");
  const Connection stuck = Connect(postgres->url());
  kill(PQbackendPID(stuck.get()), SIGSTOP);
  EXPECT_TRUE(postgres->Stop(absl::Milliseconds(200)).ok());
  EXPECT_FALSE(postgres->running());
  auto again = MustStart();
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(Query(again->url(), "SELECT answer FROM kept"), "1");
}

// The moments are not picked: a daemon that starts takes some 80 ms here, and is killed at every tenth of them.
TEST_F(EmbeddedRecoveryTest, SurvivesAKillAtAnyMomentOfTheStart) {
  MustStart().reset();
  for (int delay_ms = 0; delay_ms < 100; delay_ms += 7) {
    const pid_t daemon = fork();
    if (daemon == 0) {
      const auto started = Postgres::Start(options_);
      for (;;) pause();
    }
    // It does not end by itself: the wait for that is the delay.
    const int ended = static_cast<int>(syscall(SYS_pidfd_open, daemon, 0));
    ASSERT_GE(ended, 0);
    pollfd wait{ended, POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, delay_ms), 0) << "it ended before it was killed";
    close(ended);
    kill(daemon, SIGKILL);
    waitpid(daemon, nullptr, 0);
    auto postgres = MustStart();
    ASSERT_NE(postgres, nullptr) << "killed after " << delay_ms << " ms";
    EXPECT_EQ(Query(postgres->url(), "SELECT 1"), "1");
    EXPECT_THAT(Postmasters(Cluster()), ElementsAre(postgres->postmaster_pid()));
  }
}

}  // namespace
}  // namespace tenure::embedded
