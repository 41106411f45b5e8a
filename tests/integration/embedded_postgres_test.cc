// The embedded PostgreSQL as it is started and stopped, and what it refuses. Runs as root and as an ordinary user.
// Layer: tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/embedded/postgres.h"
#include "tests/support/embedded_fixture.h"

namespace tenure::embedded {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(EmbeddedPostgresTest, StartsFreshAndStops) {
  options_.settings.clear();  // As the daemon does it, fsync included.
  auto postgres = MustStart();
  ASSERT_NE(postgres, nullptr);
  EXPECT_FALSE(postgres->adopted());
  EXPECT_TRUE(postgres->running());
  EXPECT_EQ(Query(postgres->url(), "SHOW server_encoding"), "UTF8");
  EXPECT_EQ(Query(postgres->url(), "SELECT datcollate FROM pg_database WHERE datname = current_database()"), "C.UTF-8");
  EXPECT_EQ(Query(postgres->url(), "SHOW data_checksums"), "on");
  EXPECT_EQ(Query(postgres->url(), "SHOW listen_addresses"), "");
  EXPECT_EQ(Query(postgres->url(), "SHOW max_connections"), "60");
  EXPECT_EQ(Query(postgres->url(), "SHOW fsync"), "on");
  EXPECT_EQ(Query(postgres->url(), "SELECT current_user || '/' || current_database()"), "tenure/tenure");
  const std::string socket_dir = Query(postgres->url(), "SHOW unix_socket_directories");
  EXPECT_EQ(fs::status(socket_dir).permissions(), fs::perms(0700));
  Query(postgres->url(), "CREATE TABLE kept AS SELECT 7 AS answer");

  EXPECT_TRUE(postgres->Stop(absl::Seconds(30)).ok());
  EXPECT_TRUE(postgres->Stop(absl::Seconds(30)).ok()) << "idempotent";
  EXPECT_FALSE(postgres->running());
  EXPECT_FALSE(fs::exists(Cluster() + "/postmaster.pid"));
  EXPECT_FALSE(fs::exists(socket_dir));

  auto again = MustStart();
  ASSERT_NE(again, nullptr);
  EXPECT_FALSE(again->adopted());
  EXPECT_EQ(Query(again->url(), "SELECT answer FROM kept"), "7");
}

TEST_F(EmbeddedPostgresTest, RunsInItsOwnSessionWithNothingInherited) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM, 0));  // Deliberately without SOCK_CLOEXEC.
  const std::string inherited = fs::read_symlink(absl::StrCat("/proc/self/fd/", listener.get())).string();
  auto postgres = MustStart();
  ASSERT_NE(postgres, nullptr);
  EXPECT_EQ(getsid(postgres->postmaster_pid()), postgres->postmaster_pid());
  for (const auto& entry : fs::directory_iterator(absl::StrCat("/proc/", postgres->postmaster_pid(), "/fd"))) {
    std::error_code error;
    const std::string target = fs::read_symlink(entry.path(), error).string();
    if (error == std::errc::permission_denied) GTEST_SKIP() << "root may not look into other users' processes here";
    EXPECT_NE(target, inherited);
    EXPECT_THAT(target, Not(HasSubstr("tenure.lock")));
  }
}

TEST_F(EmbeddedPostgresTest, SaysWhichMajorVersionIsNeededAndInstalled) {
  MustStart().reset();
  const std::string installed(ReadFile(Cluster() + "/PG_VERSION"), 0, 2);
  WriteFile(Cluster() + "/PG_VERSION", "9\n");
  EXPECT_THAT(StartError(), HasSubstr("made by PostgreSQL 9: PostgreSQL 9 is needed; installed: "));
  EXPECT_THAT(StartError(), HasSubstr(absl::StrCat(installed, " (/")));
  WriteFile(Cluster() + "/PG_VERSION", "nonsense\n");
  EXPECT_THAT(StartError(), HasSubstr("is not a PostgreSQL data directory"));
}

TEST_F(EmbeddedPostgresTest, RefusesASecondDaemonByName) {
  auto postgres = MustStart();
  ASSERT_NE(postgres, nullptr);
  const auto second = Postgres::Start(options_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DetailsOf(second.status()).reason, "DATA_DIR_IN_USE");
  EXPECT_EQ(DetailsOf(second.status()).metadata["pid"], absl::StrCat(getpid()));
  EXPECT_TRUE(postgres->running());
  postgres.reset();

  auto daemon = StartDaemon();
  EXPECT_THAT(StartError(), HasSubstr(absl::StrCat("in use by process ", daemon->pid())));
}

TEST_F(EmbeddedPostgresTest, TakesALongDataDirectoryAndRefusesALongSocketParent) {
  options_.data_dir = absl::StrCat(directory_, "/", std::string(120, 'd'), "/", std::string(120, 'e'));
  // The directories between are made by the caller, and with a mode that lets PostgreSQL's user through.
  fs::create_directories(options_.data_dir);
  auto postgres = MustStart();
  ASSERT_NE(postgres, nullptr);
  EXPECT_EQ(Query(postgres->url(), "SELECT 1"), "1");
  postgres.reset();

  options_.socket_parent = options_.data_dir;
  const auto refused = Postgres::Start(options_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("107 are allowed"));
}

TEST_F(EmbeddedPostgresTest, GuardsTheSocketDirectory) {
  auto postgres = MustStart();
  ASSERT_NE(postgres, nullptr);
  const std::string socket_dir = Query(postgres->url(), "SHOW unix_socket_directories");
  postgres.reset();
  fs::create_directory(socket_dir);
  fs::permissions(socket_dir, fs::perms(0755));
  unsetenv("XDG_RUNTIME_DIR");
  const auto refused = Postgres::Start(options_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr(socket_dir + " belongs to uid"));
  fs::remove(socket_dir);
  fs::create_directory_symlink("/tmp", socket_dir);
  EXPECT_FALSE(Postgres::Start(options_).ok());
  fs::remove(socket_dir);

  // A socket's lock file that names a live process, as after a kill -9 of the server.
  fs::create_directory(socket_dir);
  fs::permissions(socket_dir, fs::perms(0700));
  WriteFile(socket_dir + "/.s.PGSQL.5432.lock",
            absl::StrCat(getppid(), "\n/elsewhere\n1700000000\n5432\n", socket_dir, "\n"));
  EXPECT_NE(MustStart(), nullptr);
}

TEST_F(EmbeddedPostgresTest, FailedStartShowsTheLog) {
  options_.settings.emplace_back("shared_buffers", "nonsense");
  const std::string error = StartError();
  EXPECT_THAT(error, HasSubstr(options_.data_dir + "/postgresql.log"));
  EXPECT_THAT(error, HasSubstr("invalid value for parameter \"shared_buffers\""));
  options_.settings.pop_back();
  EXPECT_NE(MustStart(), nullptr) << "nothing of the failed start is in the way";
}

TEST_F(EmbeddedPostgresTest, RefusesDirectoriesThatAreNotItsOwn) {
  fs::create_directories(options_.data_dir);
  WriteFile(options_.data_dir + "/PG_VERSION", "15\n");
  EXPECT_THAT(StartError(), HasSubstr("is itself a PostgreSQL data directory"));
  options_.data_dir.clear();
  EXPECT_THAT(StartError(), HasSubstr("data_dir"));
  options_.data_dir = directory_ + "/none";
  options_.bin_dir = "/nonexistent";
  EXPECT_THAT(StartError(), HasSubstr("PostgreSQL 14 or later is needed in /nonexistent; installed: none"));
}

TEST_F(EmbeddedPostgresTest, NamesTheDirectoryThatCannotBeEntered) {
  if (geteuid() != 0) GTEST_SKIP() << "only root runs PostgreSQL as another user";
  const std::string closed = directory_ + "/closed";
  fs::create_directory(closed);
  fs::permissions(closed, fs::perms(0700));
  options_.data_dir = closed + "/data";
  const auto refused = Postgres::Start(options_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("chmod o+x " + closed + ")"));
}

}  // namespace
}  // namespace tenure::embedded
