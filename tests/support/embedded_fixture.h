// What the tests of the embedded PostgreSQL share: a scratch data directory, and daemons and strangers to be killed.
// Layer: tests. One test at a time.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <libpq-fe.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/embedded/postgres.h"
#include "server/embedded/postmaster_file.h"
#include "tests/support/eventually.h"

namespace tenure::embedded {

namespace fs = std::filesystem;

struct Closer {
  void operator()(PGconn* connection) const { PQfinish(connection); }
};
using Connection = std::unique_ptr<PGconn, Closer>;

inline Connection Connect(const std::string& url) { return Connection(PQconnectdb(url.c_str())); }

// The first value of the result, or the error.
inline std::string Query(PGconn* connection, const std::string& statement) {
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

inline std::string Query(const std::string& url, const std::string& statement) {
  return Query(Connect(url).get(), statement);
}

inline bool Eventually(const std::function<bool()>& condition) { return tenure::testing::Eventually(10, condition); }

inline void WriteFile(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::trunc) << text; }

inline std::string ReadFile(const fs::path& path) {
  std::ifstream in(path);
  // A process may end while its file in /proc is read; the stream keeps that to itself, an iterator would throw it.
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Pids of the postmasters started on `cluster`. The other processes of a server, its children, overwrite their command
// line, but not at once.
inline std::vector<pid_t> Postmasters(const std::string& cluster) {
  const std::string wanted = std::string("-D") + '\0' + cluster + '\0';
  std::map<pid_t, pid_t> parents;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    if (!absl::StrContains(ReadFile(entry.path() / "cmdline"), wanted)) continue;
    // "pid (name) state parent ...": the name may hold blanks, and parentheses.
    const std::string stat = ReadFile(entry.path() / "stat");
    const std::vector<std::string> fields =
        absl::StrSplit(stat.substr(std::min(stat.size(), stat.rfind(')') + 2)), ' ');
    int parent = 0;
    if (fields.size() > 1 && absl::SimpleAtoi(fields[1], &parent)) parents[pid] = parent;
  }
  std::vector<pid_t> found;
  for (const auto& [pid, parent] : parents) {
    if (!parents.contains(parent)) found.push_back(pid);
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

}  // namespace tenure::embedded
