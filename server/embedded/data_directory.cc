#include "server/embedded/data_directory.h"

#include <fcntl.h>
#include <ftw.h>
#include <locale.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/clock.h"
#include "server/base/logging.h"
#include "server/base/status.h"

namespace tenure::embedded {
namespace {

namespace fs = std::filesystem;

constexpr char kUnfinishedPrefix[] = "initdb-";
// How often, and how far apart, an unfinished cluster is removed that somebody still works at: 2 s in all.
constexpr int kRemoveRounds = 100;
constexpr int kRemovePauseMs = 20;
constexpr off_t kLogRotateBytes = 16 << 20;
constexpr size_t kLogTailBytes = 4 << 10;

std::optional<UserId> LookUp(const passwd* entry) {
  if (entry == nullptr) return std::nullopt;
  return UserId{entry->pw_uid, entry->pw_gid, entry->pw_name};
}

std::optional<UserId> FindUser(const std::string& name) {
  passwd buffer;
  passwd* entry = nullptr;
  std::vector<char> text(16 << 10);
  getpwnam_r(name.c_str(), &buffer, text.data(), text.size(), &entry);
  return LookUp(entry);
}

// A uid without an entry is normal: the volume may come from a machine where it had one.
UserId FindUser(uid_t uid, gid_t gid) {
  passwd buffer;
  passwd* entry = nullptr;
  std::vector<char> text(16 << 10);
  getpwuid_r(uid, &buffer, text.data(), text.size(), &entry);
  return LookUp(entry).value_or(UserId{uid, gid, absl::StrCat("uid ", uid)});
}

absl::Status ChownTree(const std::string& directory, const UserId& user) {
  thread_local const UserId* target = nullptr;  // nftw passes no argument on.
  target = &user;
  const auto visit = [](const char* path, const struct stat*, int, struct FTW*) {
    return lchown(path, target->uid, target->gid);
  };
  if (nftw(directory.c_str(), visit, 32, FTW_PHYS) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("cannot hand ", directory, " over to user ", user.name));
}

absl::Status SyncDirectory(const std::string& directory) {
  UniqueFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid() && fsync(fd.get()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("cannot sync ", directory));
}

std::string ReadStart(int fd) {
  char text[64];
  const ssize_t got = pread(fd, text, sizeof text, 0);
  return std::string(text, static_cast<size_t>(std::max<ssize_t>(got, 0)));
}

const char* PreferredLocale() {
  const locale_t found = newlocale(LC_ALL_MASK, "C.UTF-8", nullptr);
  if (found == nullptr) return "C";
  freelocale(found);
  return "C.UTF-8";
}

bool MayEnter(const struct stat& info, const UserId& user) {
  if (info.st_uid == user.uid) return (info.st_mode & S_IXUSR) != 0;
  if (info.st_gid == user.gid) return (info.st_mode & S_IXGRP) != 0;
  return (info.st_mode & S_IXOTH) != 0;
}

}  // namespace

absl::StatusOr<DataDirectory> DataDirectory::Open(const std::string& path) {
  if (path.empty()) return InvalidField("data_dir", "must not be empty");
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (!error && !fs::exists(absolute, error) && !error) {
    fs::create_directories(absolute, error);
    // Root's stays root's, and only has to be passed through; what matters inside has modes of its own.
    if (!error) fs::permissions(absolute, fs::perms(geteuid() == 0 ? 0711 : 0700), error);
  }
  DataDirectory directory;
  if (!error) directory.root_ = fs::canonical(absolute, error).string();
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot use data directory ", path));
  if (fs::exists(directory.root_ + "/PG_VERSION", error)) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory.root_,
        " is itself a PostgreSQL data directory. Give an empty or missing directory (the cluster will be in its "
        "subdirectory postgres), or start that PostgreSQL yourself and give its URL."));
  }
  TENURE_RETURN_IF_ERROR(directory.Lock());
  TENURE_RETURN_IF_ERROR(directory.SettleOwner());
  TENURE_RETURN_IF_ERROR(directory.RemoveUnfinished());
  return directory;
}

uid_t DataDirectory::owner() const { return run_as_ ? run_as_->uid : geteuid(); }

// flock belongs to the open file, which every fork shares: it is gone only when the last copy is closed. Copies do not
// get beyond exec (O_CLOEXEC, and Spawn closes all), so after a kill -9 it is free as soon as the dead daemon's files
// are closed.
absl::Status DataDirectory::Lock() {
  const std::string path = root_ + "/tenure.lock";
  lock_ = UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock_.valid()) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  const auto deadline = Clock::Real().Now() + std::chrono::seconds(2);
  while (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("cannot lock ", path));
    int holder = 0;
    const bool known = absl::SimpleAtoi(ReadStart(lock_.get()), &holder) && holder > 0;
    // A holder that is dead by its pid is still closing its files, or a fork of it is about to exec: wait for that.
    if ((known && kill(holder, 0) == 0) || Clock::Real().Now() >= deadline) {
      return MakeError(
          absl::StatusCode::kFailedPrecondition, "DATA_DIR_IN_USE",
          absl::StrCat("data directory ", root_, " is in use by process ", known ? absl::StrCat(holder) : "(unknown)",
                       ". Stop that daemon, or give this one another data directory."),
          {{"pid", known ? absl::StrCat(holder) : ""}, {"data_dir", root_}});
    }
    // Nothing announces it: flock() knows no time limit, and a process that is dead, or unknown, cannot be waited for.
    usleep(10'000);
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(lock_.get(), 0) != 0 ||
      pwrite(lock_.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return ErrnoStatus(errno, absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

absl::Status DataDirectory::SettleOwner() {
  struct stat info;
  const bool exists = lstat(cluster().c_str(), &info) == 0;
  if (exists && !S_ISDIR(info.st_mode))
    return absl::FailedPreconditionError(absl::StrCat(cluster(), " is not a directory"));
  if (geteuid() != 0) {
    if (!exists || info.st_uid == geteuid()) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat(cluster(), " belongs to user ",
                                                    FindUser(info.st_uid, info.st_gid).name,
                                                    ": run as that user or as root, or chown it."));
  }
  if (exists && info.st_uid != 0) {
    run_as_ = FindUser(info.st_uid, info.st_gid);
    return absl::OkStatus();
  }
  run_as_ = FindUser("postgres");
  if (!run_as_ || run_as_->uid == 0) {
    return absl::FailedPreconditionError(
        "PostgreSQL refuses to run as root, and there is no user postgres to run it as. Run the daemon as an ordinary "
        "user, or "
        "create one: useradd --system postgres");
  }
  return exists ? ChownTree(cluster(), *run_as_) : absl::OkStatus();
}

absl::Status DataDirectory::RemoveUnfinished() const {
  std::error_code error;
  std::vector<fs::path> unfinished;
  for (const fs::directory_entry& entry : fs::directory_iterator(root_, error)) {
    if (absl::StartsWith(entry.path().filename().string(), kUnfinishedPrefix)) unfinished.push_back(entry.path());
  }
  for (const fs::path& path : unfinished) {
    LogWarn("removing an unfinished database cluster", {{"path", path.string()}});
    // An initdb whose daemon was killed may be at it still, writing or clearing up: what it removes first is no error,
    // and what it adds goes in the next round. It is nobody's child here, and unknown by pid: there is only time to
    // wait for.
    for (int round = 0; round < kRemoveRounds; ++round) {
      error.clear();
      fs::remove_all(path, error);
      std::error_code gone;
      if (!fs::exists(path, gone)) {
        error.clear();
        break;
      }
      poll(nullptr, 0, kRemovePauseMs);
    }
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot clean up ", root_));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int>> DataDirectory::ClusterMajor() const {
  // An empty directory is what a volume template or a careful administrator leaves: as good as none.
  if (rmdir(cluster().c_str()) == 0 || errno == ENOENT) return std::optional<int>();
  UniqueFd file(open((cluster() + "/PG_VERSION").c_str(), O_RDONLY | O_CLOEXEC));
  int major = 0;
  std::string text = file.valid() ? ReadStart(file.get()) : "";
  text.resize(std::min(text.size(), text.find_first_of(".\n")));
  if (!absl::SimpleAtoi(text, &major) || major <= 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(cluster(),
                     " is not a PostgreSQL data directory (no usable PG_VERSION). "
                     "Restore it from a backup, or move it away to start with an empty one."));
  }
  return std::optional<int>(major);
}

absl::Status DataDirectory::CreateCluster(const Installation& installation, bool durable,
                                          absl::Duration timeout) const {
  std::string directory = absl::StrCat(root_, "/", kUnfinishedPrefix, "XXXXXX");
  if (mkdtemp(directory.data()) == nullptr)
    return ErrnoStatus(errno, absl::StrCat("cannot make a directory in ", root_));
  absl::Status status;
  if (run_as_ && lchown(directory.c_str(), run_as_->uid, run_as_->gid) != 0) {
    status = ErrnoStatus(errno, absl::StrCat("cannot hand ", directory, " over to user ", run_as_->name));
  }
  if (status.ok()) status = RunInitdb(installation, directory, durable, timeout);
  if (status.ok() && rename(directory.c_str(), cluster().c_str()) != 0) {
    status = ErrnoStatus(errno, absl::StrCat("cannot rename ", directory, " to ", cluster()));
  }
  if (!status.ok()) {
    std::error_code ignored;
    fs::remove_all(directory, ignored);
    return status;
  }
  return durable ? SyncDirectory(root_) : absl::OkStatus();
}

absl::Status DataDirectory::RunInitdb(const Installation& installation, const std::string& directory, bool durable,
                                      absl::Duration timeout) const {
  TENURE_ASSIGN_OR_RETURN(const UniqueFd log, OpenLog());
  const off_t log_start = std::max<off_t>(lseek(log.get(), 0, SEEK_END), 0);
  Command initdb;
  initdb.argv = {installation.bin_dir + "/initdb",
                 "--pgdata",
                 directory,
                 "--username=tenure",
                 "--encoding=UTF8",
                 absl::StrCat("--locale=", PreferredLocale()),
                 "--data-checksums",
                 "--auth-local=trust",
                 "--auth-host=reject",
                 "--no-instructions"};
  if (!durable) initdb.argv.push_back("--no-sync");
  initdb.working_dir = directory;
  initdb.output_fd = log.get();
  initdb.run_as = run_as_;
  initdb.dies_with_caller = true;  // Its work would be thrown away.
  auto process = Process::Spawn(initdb);
  if (!process.ok()) return absl::IsPermissionDenied(process.status()) ? ExplainNoEntry(directory) : process.status();
  if (!(*process)->WaitForExit(timeout)) {
    (*process)->Signal(SIGKILL).IgnoreError();
    (*process)->WaitForExit(absl::InfiniteDuration());
    return absl::DeadlineExceededError(
        absl::StrCat("initdb did not end within ", absl::FormatDuration(timeout), ".", LogTail(log_start)));
  }
  if ((*process)->Succeeded()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("initdb failed (", (*process)->ExitReason(), ").", LogTail(log_start)));
}

absl::StatusOr<UniqueFd> DataDirectory::OpenLog() const {
  struct stat info;
  if (lstat(log_path().c_str(), &info) == 0 && info.st_size > kLogRotateBytes) {
    rename(log_path().c_str(), (log_path() + ".1").c_str());
  }
  UniqueFd log(open(log_path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log.valid()) return ErrnoStatus(errno, absl::StrCat("cannot open ", log_path()));
  return log;
}

std::string DataDirectory::LogTail(off_t offset) const {
  const std::string heading = absl::StrCat(" PostgreSQL's log is ", log_path());
  UniqueFd log(open(log_path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  const off_t end = log.valid() ? lseek(log.get(), 0, SEEK_END) : 0;
  if (end <= offset) return heading + " (nothing new in it).";
  const off_t start = std::max(offset, end - static_cast<off_t>(kLogTailBytes));
  std::string text(static_cast<size_t>(end - start), '\0');
  const ssize_t got = pread(log.get(), text.data(), text.size(), start);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (start > offset) text.erase(0, text.find('\n') + 1);  // The first line is cut off.
  return absl::StrCat(heading, ", its end:\n", absl::StripSuffix(text, "\n"));
}

absl::Status DataDirectory::ExplainNoEntry(const std::string& path) const {
  const UserId user = run_as_.value_or(FindUser(geteuid(), getegid()));
  std::string culprit = path;
  fs::path current;
  for (const fs::path& part : fs::path(path)) {
    current /= part;
    struct stat info;
    if (stat(current.c_str(), &info) == 0 && !MayEnter(info, user)) {
      culprit = current.string();
      break;
    }
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "PostgreSQL has to run as user ", user.name, ", who may not enter ", culprit, ". Allow it (chmod o+x ", culprit,
      "), or give a data directory elsewhere, for example under /var/lib."));
}

}  // namespace tenure::embedded
