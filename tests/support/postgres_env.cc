#include "tests/support/postgres_env.h"

#include <fcntl.h>
#include <libpq-fe.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/embedded/postmaster_file.h"

namespace tenure::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kDirectoryPrefix[] = "tenure-test-";
// A database is some 300 files, which memory takes five times faster than a disk. Where memory is small (64 MB is usual
// in containers) it is /tmp.
constexpr const char* kParents[] = {"/dev/shm", "/tmp"};
constexpr uint64_t kRoomyBytes = uint64_t{4} << 30;

std::string ChooseParent() {
  struct statvfs space;
  const bool roomy = statvfs(kParents[0], &space) == 0 && uint64_t{space.f_bavail} * space.f_frsize >= kRoomyBytes;
  return kParents[roomy && access(kParents[0], W_OK) == 0 ? 0 : 1];
}

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "PostgresEnv: %s\n", message.c_str());
  std::abort();
}

struct ConninfoFree {
  void operator()(PQconninfoOption* options) const { PQconninfoFree(options); }
};
using Conninfo = std::unique_ptr<PQconninfoOption, ConninfoFree>;

Conninfo Parse(const std::string& url) {
  char* error = nullptr;
  Conninfo parsed(PQconninfoParse(url.c_str(), &error));
  if (parsed == nullptr) {
    const std::string reason = error != nullptr ? error : "out of memory";
    PQfreemem(error);
    Die(absl::StrCat("not a database URL: ", reason));
  }
  return parsed;
}

std::string DatabaseOf(const std::string& url) {
  const Conninfo parsed = Parse(url);
  for (const PQconninfoOption* option = parsed.get(); option->keyword != nullptr; ++option) {
    if (std::strcmp(option->keyword, "dbname") == 0 && option->val != nullptr) return option->val;
  }
  return "";
}

std::string PercentEncode(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("-_.~", c) != nullptr) {
      out.push_back(c);
    } else {
      out.push_back('%');
      absl::StrAppend(&out, absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  return out;
}

// As a URI, whichever form `url` has. Everything but user, password and database goes into the query, which every libpq
// takes.
std::string WithDatabase(const std::string& url, const std::string& database) {
  std::string user, password, query;
  const Conninfo parsed = Parse(url);
  for (const PQconninfoOption* option = parsed.get(); option->keyword != nullptr; ++option) {
    const std::string keyword = option->keyword;
    if (option->val == nullptr || keyword == "dbname") continue;
    if (keyword == "user") {
      user = PercentEncode(option->val);
    } else if (keyword == "password") {
      password = absl::StrCat(":", PercentEncode(option->val));
    } else {
      absl::StrAppend(&query, query.empty() ? "?" : "&", keyword, "=", PercentEncode(option->val));
    }
  }
  const std::string who = user.empty() && password.empty() ? "" : absl::StrCat(user, password, "@");
  return absl::StrCat("postgresql://", who, "/", PercentEncode(database), query);
}

// A directory of an earlier run is free to go when nobody holds its lock; a server may still be at work in it.
void SweepLeftovers() {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const char* parent : kParents) {
    for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
      if (absl::StartsWith(entry.path().filename().string(), kDirectoryPrefix)) found.push_back(entry.path());
    }
  }
  for (const fs::path& path : found) {
    struct stat info;
    if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) continue;
    const embedded::UniqueFd lock(open((path / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!lock.valid() || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (const auto postmaster = embedded::FindPostmaster(path / "data" / "postgres")) {
      postmaster->Signal(SIGQUIT).IgnoreError();
      postmaster->WaitForExit(absl::Seconds(10));
    }
    fs::remove_all(path, ignored);
  }
}

// What is left of the watcher after fork: it may call only what is async-signal-safe.
[[noreturn]] void Watch(int pipe_end, int postmaster, const char* directory) {
  setsid();
  dup2(pipe_end, 3);
  dup2(postmaster, 4);
  syscall(SYS_close_range, 5U, ~0U, 0U);
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);  // A runner waits until nobody has its pipe any more.
  char byte;
  while (read(3, &byte, 1) < 0 && errno == EINTR) {
  }
  syscall(SYS_pidfd_send_signal, 4, SIGQUIT, nullptr, 0);
  pollfd ended{4, POLLIN, 0};
  poll(&ended, 1, 10'000);
  execl("/bin/rm", "rm", "-rf", directory, static_cast<char*>(nullptr));
  _exit(1);
}

}  // namespace

PostgresEnv& PostgresEnv::Get() {
  // Never destroyed: it is shut down at exit, when other statics may still want it.
  static PostgresEnv* env = new PostgresEnv;
  return *env;
}

PostgresEnv::PostgresEnv() {
  const char* given = std::getenv("TENURE_TEST_DATABASE_URL");
  if (given != nullptr && *given != '\0') {
    admin_url_ = given;
  } else {
    StartServer();
  }
  static const pid_t owner = getpid();
  // A child that a test forked may run exit() as well; the server is not the child's.
  std::atexit([] {
    if (getpid() == owner) Get().Shutdown();
  });
}

void PostgresEnv::StartServer() {
  SweepLeftovers();
  std::string directory = absl::StrCat(ChooseParent(), "/", kDirectoryPrefix, "XXXXXX");
  if (mkdtemp(directory.data()) == nullptr) Die(absl::StrCat("cannot make ", directory, ": ", std::strerror(errno)));
  directory_lock_ = embedded::UniqueFd(open((directory + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!directory_lock_.valid() || flock(directory_lock_.get(), LOCK_EX | LOCK_NB) != 0) Die("cannot lock " + directory);
  // As root, PostgreSQL's user has to get through.
  chmod(directory.c_str(), 0711);
  const std::string sockets = directory + "/sockets";
  mkdir(sockets.c_str(), 0755);
  directory_ = directory;

  embedded::Options options;
  options.data_dir = directory + "/data";
  options.socket_parent = sockets;
  options.settings = {{"fsync", "off"},
                      {"full_page_writes", "off"},
                      {"synchronous_commit", "on"},
                      {"max_prepared_transactions", "20"},
                      {"max_connections", "200"}};
  auto server = embedded::Postgres::Start(options);
  if (!server.ok()) Die(absl::StrCat("cannot start PostgreSQL: ", std::string(server.status().message())));
  server_ = std::move(*server);
  admin_url_ = server_->UrlOf("postgres");
  StartWatcher();
}

// A process of its own that sees this one end, however it ends, by the end of a pipe. It is nobody's child, so that a
// runner which kills the process tree of a test that hangs does not kill it too.
void PostgresEnv::StartWatcher() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Die("cannot make a pipe");
  const embedded::UniqueFd read_end(fcntl(ends[0], F_DUPFD_CLOEXEC, 10));
  close(ends[0]);
  watcher_pipe_ = embedded::UniqueFd(ends[1]);
  const embedded::UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, server_->postmaster_pid(), 0)));
  const embedded::UniqueFd postmaster(fcntl(pidfd.get(), F_DUPFD_CLOEXEC, 10));
  const char* directory = directory_.c_str();
  const pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) Watch(read_end.get(), postmaster.get(), directory);
    _exit(0);
  }
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void PostgresEnv::Shutdown() {
  if (server_ != nullptr) {
    server_->Stop(absl::Seconds(5)).IgnoreError();
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
    return;
  }
  std::set<std::string> left;
  {
    std::lock_guard lock(mutex_);
    left = databases_;
  }
  for (const std::string& database : left) DropDatabase(UrlOf(database));
}

std::string PostgresEnv::CreateDatabase(const std::string& template_url) {
  std::lock_guard lock(mutex_);
  const std::string name = absl::StrCat("tenure_test_", getpid(), "_", ++next_database_);
  const std::string source = template_url.empty() ? "template0" : DatabaseOf(template_url);
  Execute(absl::StrCat("CREATE DATABASE \"", name, "\" TEMPLATE \"", source, "\""));
  databases_.insert(name);
  return UrlOf(name);
}

void PostgresEnv::DropDatabase(const std::string& url) {
  const std::string name = DatabaseOf(url);
  // Never one that is not ours: the server may be somebody's.
  if (!absl::StartsWith(name, "tenure_test_")) Die("not a test database: " + name);
  {
    std::lock_guard lock(mutex_);
    databases_.erase(name);
  }
  Execute(absl::StrCat("DROP DATABASE IF EXISTS \"", name, "\" WITH (FORCE)"));
}

void PostgresEnv::Execute(const std::string& statement) const {
  PGconn* connection = PQconnectdb(admin_url_.c_str());
  if (PQstatus(connection) != CONNECTION_OK) Die(PQerrorMessage(connection));
  PQsetNoticeProcessor(
      connection, [](void*, const char*) {}, nullptr);
  PGresult* result = PQexec(connection, statement.c_str());
  if (PQresultStatus(result) != PGRES_COMMAND_OK) Die(absl::StrCat(statement, ": ", PQerrorMessage(connection)));
  PQclear(result);
  PQfinish(connection);
}

std::string PostgresEnv::UrlOf(const std::string& database) const {
  return server_ != nullptr ? server_->UrlOf(database) : WithDatabase(admin_url_, database);
}

}  // namespace tenure::testing
