// PostgresServer: see the header. Layer: tests (benchmark).
#include "postgres_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/embedded/postmaster_file.h"

namespace tenure::bench {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "tenure-bench-";

// A directory whose lock nobody holds is free to go; its server may still be at work.
void SweepLeftovers(const std::string& parent) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
    if (absl::StartsWith(entry.path().filename().string(), kPrefix)) found.push_back(entry.path());
  }
  for (const fs::path& path : found) {
    struct stat info;
    if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) continue;
    const embedded::UniqueFd lock(open((path / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!lock.valid() || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
    const std::string cluster = path / "data" / "postgres";
    if (const auto postmaster = embedded::FindPostmaster(cluster)) {
      const auto file = embedded::ReadPostmasterFile(cluster);
      postmaster->Signal(SIGQUIT).IgnoreError();
      postmaster->WaitForExit(absl::Seconds(10));
      if (file && !file->socket_dir.empty()) fs::remove(file->socket_dir, ignored);
    }
    fs::remove_all(path, ignored);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<PostgresServer>> PostgresServer::Start(
    const std::string& parent, const std::vector<std::pair<std::string, std::string>>& settings) {
  SweepLeftovers(parent);
  std::unique_ptr<PostgresServer> made(new PostgresServer);
  std::string directory = absl::StrCat(parent, "/", kPrefix, "XXXXXX");
  if (mkdtemp(directory.data()) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("cannot make ", directory, ": ", std::strerror(errno)));
  }
  made->directory_ = directory;
  made->directory_lock_ = embedded::UniqueFd(open((directory + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!made->directory_lock_.valid() || flock(made->directory_lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::InternalError("cannot lock " + directory);
  }
  // As root, PostgreSQL's user has to get through.
  if (chmod(directory.c_str(), 0711) != 0) return absl::InternalError("cannot open up " + directory);
  embedded::Options options;
  options.data_dir = directory + "/data";
  // Some peers want more sessions than the daemon's own server lets in.
  options.settings = {{"max_connections", "120"}};
  options.settings.insert(options.settings.end(), settings.begin(), settings.end());
  auto server = embedded::Postgres::Start(options);
  if (!server.ok()) return server.status();
  made->server_ = *std::move(server);
  auto admin = Database::Open(made->UrlOf("postgres"));
  if (!admin.ok()) return admin.status();
  made->admin_ = std::make_unique<Database>(*std::move(admin));
  return made;
}

PostgresServer::~PostgresServer() { Stop(); }

void PostgresServer::Stop() {
  if (server_) server_->Stop(absl::Seconds(10)).IgnoreError();
  if (directory_.empty()) return;
  std::error_code ignored;  // A scratch directory; the next run sweeps what is left.
  fs::remove_all(directory_, ignored);
}

absl::StatusOr<std::string> PostgresServer::CreateDatabase(const std::string& name) {
  if (absl::Status dropped = DropDatabase(name); !dropped.ok()) return dropped;
  if (absl::Status made = admin_->Execute(absl::StrCat("CREATE DATABASE \"", name, "\" TEMPLATE template0"));
      !made.ok()) {
    return made;
  }
  if (absl::Status done = Checkpoint(); !done.ok()) return done;
  return UrlOf(name);
}

absl::Status PostgresServer::DropDatabase(const std::string& name) {
  return admin_->Execute(absl::StrCat("DROP DATABASE IF EXISTS \"", name, "\" WITH (FORCE)"));
}

absl::Status PostgresServer::Checkpoint() { return admin_->Execute("CHECKPOINT"); }

}  // namespace tenure::bench
