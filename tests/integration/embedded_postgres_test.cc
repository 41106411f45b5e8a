// The embedded PostgreSQL through what befalls it in the field: kill -9 of the daemon, of the server, of initdb; stale
// and foreign files; two daemons on one directory; long paths. Runs as root and as an ordinary user. Layer: tests.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libpq-fe.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/embedded/postgres.h"
#include "server/embedded/postmaster_file.h"

namespace tenure::embedded {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Closer {
  void operator()(PGconn* connection) const { PQfinish(connection); }
};
using Connection = std::unique_ptr<PGconn, Closer>;

Connection Connect(const std::string& url) { return Connection(PQconnectdb(url.c_str())); }

// The first value of the result, or the error.
std::string Query(PGconn* connection, const std::string& statement) {
  PGresult* result = PQexec(connection, statement.c_str());
  std::string text;
  if (PQresultStatus(result) == PGRES_TUPLES_OK) {
    text = PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "(none)";
  } else if (PQresultStatus(result) != PGRES_COMMAND_OK) {
    text = absl::StrCat("ERROR ", PQerrorMessage(connection));
  }
  PQclear(result);
  return text;
}

std::string Query(const std::string& url, const std::string& statement) { return Query(Connect(url).get(), statement); }

// Polls a condition that no signal announces; true if it came to hold within ten seconds.
bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    usleep(5'000);
  }
  return false;
}

void WriteFile(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::trunc) << text; }

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Pids of the postmasters started on `cluster`. (The other processes of a server overwrite their command line.)
std::vector<pid_t> Postmasters(const std::string& cluster) {
  const std::string wanted = std::string("-D") + '\0' + cluster + '\0';
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    if (absl::StrContains(ReadFile(entry.path() / "cmdline"), wanted)) found.push_back(pid);
  }
  return found;
}

// A process that does something and then waits to be killed; killed at the latest by the destructor.
class Victim {
 public:
  explicit Victim(const std::function<bool()>& body) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd reader(ends[0]);
    UniqueFd writer(ends[1]);
    pid_ = fork();
    if (pid_ == 0) {
      const char done = body() ? 'y' : 'n';
      if (write(writer.get(), &done, 1) != 1) _exit(1);
      for (;;) pause();
    }
    writer.Reset();
    char done = 'n';
    ready_ = read(reader.get(), &done, 1) == 1 && done == 'y';
  }
  ~Victim() { Kill(); }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }
  bool ready() const { return ready_; }

 private:
  pid_t pid_ = -1;
  bool ready_ = false;
};

class EmbeddedPostgresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/tenure-embedded-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    ASSERT_EQ(chmod(directory_.c_str(), 0711), 0);
    options_.data_dir = directory_ + "/data";
    options_.settings = {{"fsync", "off"}};
  }

  void TearDown() override {
    if (const auto left = FindPostmaster(Cluster())) {
      const std::string socket_dir = ReadPostmasterFile(Cluster())->socket_dir;
      left->Signal(SIGQUIT).IgnoreError();
      left->WaitForExit(absl::Seconds(10));
      fs::remove(socket_dir);
    }
    fs::remove_all(directory_);
  }

  std::string Cluster() const { return options_.data_dir + "/postgres"; }

  std::unique_ptr<Postgres> MustStart() {
    auto postgres = Postgres::Start(options_);
    EXPECT_TRUE(postgres.ok()) << postgres.status();
    return postgres.ok() ? std::move(*postgres) : nullptr;
  }

  std::string StartError() {
    const auto postgres = Postgres::Start(options_);
    EXPECT_FALSE(postgres.ok());
    return std::string(postgres.status().message());
  }

  // A daemon that has started PostgreSQL and committed one row, to be killed.
  std::unique_ptr<Victim> StartDaemon() {
    auto daemon = std::make_unique<Victim>([this] {
      static std::unique_ptr<Postgres> postgres;
      auto started = Postgres::Start(options_);
      if (!started.ok()) return false;
      postgres = std::move(*started);
      return Query(postgres->url(), "CREATE TABLE kept AS SELECT 42 AS answer") == "";
    });
    EXPECT_TRUE(daemon->ready());
    return daemon;
  }

  // A live process that PostgreSQL would take for a server of its own user.
  std::unique_ptr<Victim> StartStranger() {
    struct stat info;
    EXPECT_EQ(stat(Cluster().c_str(), &info), 0);
    auto stranger = std::make_unique<Victim>([&info] { return geteuid() != 0 || setuid(info.st_uid) == 0; });
    EXPECT_TRUE(stranger->ready());
    return stranger;
  }

  std::string directory_;
  Options options_;
};

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

TEST_F(EmbeddedPostgresTest, AdoptsTheServerOfAKilledDaemon) {
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

TEST_F(EmbeddedPostgresTest, RecoversWhenDaemonAndServerWereKilled) {
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

TEST_F(EmbeddedPostgresTest, ReplacesALiveServerWhoseSocketIsGone) {
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

TEST_F(EmbeddedPostgresTest, StartsOverAStalePidOfALiveStranger) {
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

TEST_F(EmbeddedPostgresTest, StartsOverAStalePidOfAnotherClustersServer) {
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

TEST_F(EmbeddedPostgresTest, StartsOverAnEmptyOrGarbledPidFile) {
  MustStart().reset();
  for (const std::string text : {"", "\n", "garbage\n"}) {
    WriteFile(Cluster() + "/postmaster.pid", text);
    EXPECT_NE(MustStart(), nullptr) << "pid file: " << text;
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

TEST_F(EmbeddedPostgresTest, ClearsAHalfMadeCluster) {
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

TEST_F(EmbeddedPostgresTest, NoticesThatTheServerDied) {
  auto postgres = MustStart();
  ASSERT_NE(postgres, nullptr);
  EXPECT_FALSE(postgres->WaitForExit(absl::ZeroDuration()));
  kill(postgres->postmaster_pid(), SIGKILL);
  EXPECT_TRUE(postgres->WaitForExit(absl::Seconds(10)));
  EXPECT_FALSE(postgres->running());
  postgres.reset();
  EXPECT_NE(MustStart(), nullptr);
}

TEST_F(EmbeddedPostgresTest, StopsAtOnceWhenAFastShutdownHangs) {
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

}  // namespace
}  // namespace tenure::embedded
