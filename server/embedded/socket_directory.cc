#include "server/embedded/socket_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/status.h"

namespace tenure::embedded {
namespace {

// FNV-1a. The device and inode tell apart directories of one name in containers that share /tmp.
uint64_t Fingerprint(const std::string& root) {
  struct stat info = {};
  stat(root.c_str(), &info);
  uint64_t hash = 14695981039346656037ULL;
  for (const char c : absl::StrCat(root, ":", info.st_dev, ":", info.st_ino)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return hash;
}

std::string SocketName() { return absl::StrCat(".s.PGSQL.", kSocketPort); }

absl::Status Prepare(const std::string& directory, const DataDirectory& data) {
  const std::string socket = absl::StrCat(directory, "/", SocketName());
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (socket.size() > kLongest) {
    return InvalidField("socket_parent", absl::StrCat("too long: the socket ", socket, " would have ", socket.size(),
                                                      " bytes, and ", kLongest, " are allowed"));
  }
  const bool made = mkdir(directory.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return ErrnoStatus(errno, absl::StrCat("cannot make ", directory));
  // From here on by descriptor: in /tmp, others could swap what a path names.
  UniqueFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (!fd.valid() || fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", directory));
  // Root may have been killed between making it and handing it over.
  if (info.st_uid == 0 && geteuid() == 0 && data.run_as()) {
    if (fchown(fd.get(), data.run_as()->uid, data.run_as()->gid) != 0 || fstat(fd.get(), &info) != 0) {
      return ErrnoStatus(errno, absl::StrCat("cannot hand ", directory, " over to user ", data.run_as()->name));
    }
  }
  if (info.st_uid != data.owner() || (info.st_mode & 07777) != 0700) {
    return absl::PermissionDeniedError(
        absl::StrCat(directory, " belongs to uid ", info.st_uid, " with mode ", absl::Hex((info.st_mode >> 6) & 7),
                     absl::Hex((info.st_mode >> 3) & 7), absl::Hex(info.st_mode & 7), ", but must belong to uid ",
                     data.owner(), " with mode 700: someone else may have made it. Remove it."));
  }
  for (const std::string& name : {SocketName(), SocketName() + ".lock"}) {
    if (unlinkat(fd.get(), name.c_str(), 0) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("cannot remove ", directory, "/", name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> PrepareSocketDirectory(const DataDirectory& data, const std::string& parent) {
  std::vector<std::string> parents = {parent};
  if (parent.empty()) {
    parents = {"/tmp"};
    // Second, as it goes away with its user's last session. Root's own is closed to the user that PostgreSQL runs as.
    if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/' && !data.run_as()) {
      parents.push_back(runtime);
    }
  }
  absl::Status first;
  for (const std::string& candidate : parents) {
    const std::string directory =
        absl::StrCat(candidate, "/tenure-", absl::Hex(Fingerprint(data.root()), absl::kZeroPad16));
    absl::Status status = Prepare(directory, data);
    if (status.ok()) return directory;
    if (first.ok()) first = std::move(status);
  }
  return first;
}

void RemoveSocketDirectory(const std::string& directory) { rmdir(directory.c_str()); }

}  // namespace tenure::embedded
