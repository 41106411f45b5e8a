// The suites' own fixture: databases are fresh, copies are copies, and nothing is left behind by a test process that is
// killed. Layer: tests.
#include "tests/support/postgres_env.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libpq-fe.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/eventually.h"

namespace tenure::testing {
namespace {

std::string Query(const std::string& url, const std::string& statement) {
  PGconn* connection = PQconnectdb(url.c_str());
  if (PQstatus(connection) != CONNECTION_OK) {
    const std::string error = PQerrorMessage(connection);
    PQfinish(connection);
    return error;
  }
  PGresult* result = PQexec(connection, statement.c_str());
  std::string text = PQresultStatus(result) == PGRES_TUPLES_OK ? PQgetvalue(result, 0, 0) : PQerrorMessage(connection);
  PQclear(result);
  PQfinish(connection);
  return text;
}

TEST(PostgresEnvTest, GivesFreshDatabasesAndCopies) {
  const ScopedDatabase first;
  EXPECT_EQ(Query(first.url(), "CREATE TABLE t AS SELECT 5 AS x"), "");
  const ScopedDatabase copy(first.url());
  EXPECT_EQ(Query(copy.url(), "SELECT x FROM t"), "5");
  const ScopedDatabase second;
  EXPECT_THAT(Query(second.url(), "SELECT x FROM t"), ::testing::HasSubstr("does not exist"));

  std::string dropped;
  {
    const ScopedDatabase third;
    dropped = third.url();
    EXPECT_EQ(Query(dropped, "SELECT 1"), "1");
  }
  EXPECT_THAT(Query(dropped, "SELECT 1"), ::testing::HasSubstr("does not exist"));
}

// Not a test: what the next one runs in another process.
TEST(PostgresEnvTest, DISABLED_StartAndHang) {
  const std::string directory = Query(PostgresEnv::Get().admin_url(), "SHOW data_directory") + "\n";
  const char* pipe_end = std::getenv("TENURE_TEST_PIPE");
  ASSERT_NE(pipe_end, nullptr);
  ASSERT_EQ(write(std::atoi(pipe_end), directory.data(), directory.size()), static_cast<ssize_t>(directory.size()));
  for (;;) pause();
}

TEST(PostgresEnvTest, LeavesNothingBehindWhenKilled) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    unsetenv("TENURE_TEST_DATABASE_URL");
    setenv("TENURE_TEST_PIPE", absl::StrCat(ends[1]).c_str(), 1);
    unsetenv("GTEST_TOTAL_SHARDS");  // The one test it runs would fall to one shard only.
    unsetenv("GTEST_SHARD_INDEX");
    execl("/proc/self/exe", "test", "--gtest_filter=PostgresEnvTest.DISABLED_StartAndHang",
          "--gtest_also_run_disabled_tests", "--gtest_brief=1", static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  std::string directory;
  for (char c; read(ends[0], &c, 1) == 1 && c != '\n';) directory.push_back(c);
  close(ends[0]);
  ASSERT_TRUE(std::filesystem::exists(directory)) << directory;
  const std::string root = directory.substr(0, directory.find("/data/"));
  ASSERT_TRUE(absl::StrContains(root, "/tenure-test-")) << root;

  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(Eventually(10, [&] { return !std::filesystem::exists(root); })) << root;
}

}  // namespace
}  // namespace tenure::testing
