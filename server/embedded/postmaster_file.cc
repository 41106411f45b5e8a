#include "server/embedded/postmaster_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/logging.h"
#include "server/base/status.h"

namespace tenure::embedded {
namespace {

constexpr absl::Duration kOrphanGrace = absl::Seconds(5);
// How long a server may be at work before its file names it.
constexpr absl::Duration kFileGrace = absl::Milliseconds(500);
constexpr absl::Duration kFilePoll = absl::Milliseconds(10);

std::string FilePath(const std::string& cluster) { return cluster + "/postmaster.pid"; }

// Also for files of /proc, which have no size.
std::string ReadAll(const std::string& path) {
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::string text;
  char part[4096];
  ssize_t got;
  while (file.valid() && (got = read(file.get(), part, sizeof part)) > 0) text.append(part, static_cast<size_t>(got));
  return text;
}

bool SameFile(const std::string& a, const std::string& b) {
  struct stat first, second;
  return stat(a.c_str(), &first) == 0 && stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// Makes this thread look at files as another user while it lives. Root without CAP_SYS_PTRACE, the default in
// containers, may not see another user's /proc/PID/cwd and exe; that user may. No effect unless the caller is root.
class FileUser {
 public:
  FileUser(uid_t uid, gid_t gid) {
    if (geteuid() != 0) return;
    setfsgid(gid);
    setfsuid(uid);
  }
  ~FileUser() {
    if (geteuid() != 0) return;
    setfsuid(0);
    setfsgid(getegid());
  }
  FileUser(const FileUser&) = delete;
  FileUser& operator=(const FileUser&) = delete;
};

bool IsPostgres(pid_t pid) {
  char target[4096];
  const ssize_t got = readlink(absl::StrCat("/proc/", pid, "/exe").c_str(), target, sizeof target);
  std::string program(target, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  program = std::string(absl::StripSuffix(program, " (deleted)"));  // Upgraded while it ran.
  return absl::EndsWith(program, "/postgres");
}

// A zombie has no working directory, and so serves nothing.
bool Serves(pid_t pid, const std::string& cluster) {
  struct stat process, directory;
  if (stat(absl::StrCat("/proc/", pid).c_str(), &process) != 0 || stat(cluster.c_str(), &directory) != 0) return false;
  // PostgreSQL refuses a directory that is not its own user's.
  if (process.st_uid != directory.st_uid) return false;
  const FileUser user(process.st_uid, process.st_gid);
  return IsPostgres(pid) && SameFile(absl::StrCat("/proc/", pid, "/cwd"), cluster);
}

std::vector<std::unique_ptr<Process>> ProcessesOf(const std::string& cluster) {
  std::vector<std::unique_ptr<Process>> found;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return found;
  while (const dirent* entry = readdir(proc)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid) || !Serves(pid, cluster)) continue;
    std::unique_ptr<Process> process = Process::Open(pid);
    if (process != nullptr && Serves(pid, cluster)) found.push_back(std::move(process));
  }
  closedir(proc);
  return found;
}

// Left alone they keep the old shared memory attached, and PostgreSQL then rightly refuses to start.
absl::Status EndOrphans(const std::string& cluster) {
  for (const int signal : {SIGQUIT, SIGKILL}) {
    const std::vector<std::unique_ptr<Process>> orphans = ProcessesOf(cluster);
    if (orphans.empty()) return absl::OkStatus();
    LogWarn("ending processes of an earlier PostgreSQL",
            {{"cluster", cluster}, {"processes", absl::StrCat(orphans.size())}, {"signal", absl::StrCat(signal)}});
    for (const auto& orphan : orphans) orphan->Signal(signal).IgnoreError();
    for (const auto& orphan : orphans) orphan->WaitForExit(kOrphanGrace);
  }
  const std::vector<std::unique_ptr<Process>> left = ProcessesOf(cluster);
  if (left.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "process ", left.front()->pid(), " of an earlier PostgreSQL still uses ", cluster, " and does not end"));
}

// The file names a live process that is not a server of this directory. PostgreSQL takes any live process of its own
// user for one. Removing the file would also remove its shared memory key, the only guard against backends that
// outlived their postmaster where they cannot be seen; so the name alone is changed, to the new postmaster's parent,
// which it ignores.
absl::Status DisownFile(const std::string& cluster, uid_t owner) {
  const std::string path = FilePath(cluster);
  std::string text = ReadAll(path);
  text.replace(0, text.find('\n'), absl::StrCat(getpid()));
  const std::string fresh = path + ".tenure";
  unlink(fresh.c_str());
  UniqueFd file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid() || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      (geteuid() == 0 && fchown(file.get(), owner, static_cast<gid_t>(-1)) != 0) ||
      rename(fresh.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot rewrite the stale ", path));
  }
  return absl::OkStatus();
}

std::unique_ptr<Process> FindNamed(const std::string& cluster) {
  const std::optional<PostmasterFile> file = ReadPostmasterFile(cluster);
  if (!file || file->single_user) return nullptr;
  // Opened before it is looked at: from then on the pid cannot change its owner unnoticed.
  std::unique_ptr<Process> process = Process::Open(file->pid);
  if (process == nullptr || !Serves(file->pid, cluster) || !process->Running()) return nullptr;
  return process;
}

}  // namespace

std::optional<PostmasterFile> ReadPostmasterFile(const std::string& cluster) {
  // Lines: pid, directory, start time, port, socket directory, listen address, shared memory key, status.
  const std::string text = ReadAll(FilePath(cluster));
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  lines.resize(8);
  PostmasterFile file;
  if (!absl::SimpleAtoi(lines[0], &file.pid) || file.pid == 0) return std::nullopt;
  file.single_user = file.pid < 0;
  file.pid = std::abs(file.pid);
  if (!absl::SimpleAtoi(lines[3], &file.port)) file.port = 0;
  file.socket_dir = lines[4];
  file.status = std::string(absl::StripAsciiWhitespace(lines[7]));
  return file;
}

std::unique_ptr<Process> FindPostmaster(const std::string& cluster) {
  std::unique_ptr<Process> postmaster = FindNamed(cluster);
  for (absl::Duration waited; postmaster == nullptr && waited < kFileGrace; waited += kFilePoll) {
    const std::vector<std::unique_ptr<Process>> running = ProcessesOf(cluster);
    if (running.empty()) break;
    running.front()->WaitForExit(kFilePoll);
    postmaster = FindNamed(cluster);
  }
  return postmaster;
}

absl::Status ClearForStart(const std::string& cluster, uid_t owner) {
  const std::optional<PostmasterFile> file = ReadPostmasterFile(cluster);
  if (file && file->single_user && Serves(file->pid, cluster)) {
    return absl::FailedPreconditionError(
        absl::StrCat("a single-user PostgreSQL (process ", file->pid, ") is at work on ", cluster));
  }
  TENURE_RETURN_IF_ERROR(EndOrphans(cluster));
  if (!file) {
    // An empty or garbled file, left by a power cut: PostgreSQL would refuse to start.
    if (unlink(FilePath(cluster).c_str()) == 0) {
      LogWarn("removed an unreadable postmaster.pid", {{"cluster", cluster}});
    } else if (errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("cannot remove ", FilePath(cluster)));
    }
    return absl::OkStatus();
  }
  if (kill(file->pid, 0) != 0 && errno == ESRCH) return absl::OkStatus();  // PostgreSQL clears this one by itself.
  LogWarn("postmaster.pid names a process that is not this PostgreSQL",
          {{"cluster", cluster}, {"pid", absl::StrCat(file->pid)}});
  return DisownFile(cluster, owner);
}

}  // namespace tenure::embedded
