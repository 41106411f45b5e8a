// DirectorySink: see the header. A file is written under another name, flushed, and renamed, and its folder flushed: a
// name stands for a whole file, also after the power was cut. Layer: background/targets.
#include "server/background/targets/directory_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace tenure::background::targets {
namespace {

namespace fs = std::filesystem;

absl::Status Failed(const std::string& what, const fs::path& path, int error) {
  const std::string message = absl::StrCat("cannot ", what, " ", path.string(), ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status WriteFile(const fs::path& path, const std::string& bytes) {
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.get() < 0) return Failed("write", path, errno);
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t wrote = write(file.get(), bytes.data() + at, bytes.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Failed("write", path, errno);
    at += static_cast<size_t>(wrote);
  }
  if (fsync(file.get()) != 0) return Failed("flush", path, errno);
  return absl::OkStatus();
}

absl::Status FlushFolder(const fs::path& path) {
  const Descriptor folder(path, O_RDONLY | O_DIRECTORY);
  if (folder.get() < 0 || fsync(folder.get()) != 0) return Failed("flush", path, errno);
  return absl::OkStatus();
}

// Makes `path` and what is missing above it, and flushes what each was made in.
absl::Status MakeFolders(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return absl::OkStatus();
  if (path.has_parent_path() && path != path.parent_path()) TENURE_RETURN_IF_ERROR(MakeFolders(path.parent_path()));
  fs::create_directory(path, error);
  if (error) return Failed("make", path, error.value());
  return FlushFolder(path.parent_path());
}

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectSink>> DirectorySink::Open(const std::string& path, const std::string& allowed) {
  if (allowed.empty()) {
    return absl::PermissionDeniedError("the daemon writes no files for targets; --target-directory names where it may");
  }
  std::error_code error;
  const fs::path root = fs::weakly_canonical(path, error);
  if (error) return Failed("find", path, error.value());
  const fs::path within = fs::canonical(allowed, error);
  if (error) return Failed("find", allowed, error.value());
  const fs::path relative = root.lexically_relative(within);
  if (relative.empty() || *relative.begin() == "..") {
    return absl::PermissionDeniedError(absl::StrCat(path, " is not below the directory that --target-directory names"));
  }
  return std::unique_ptr<ObjectSink>(new DirectorySink(root.string()));
}

absl::Status DirectorySink::Put(const std::string& name, const std::string& bytes, std::string_view,
                                const std::stop_token&) {
  const fs::path path = fs::path(root_) / name;
  TENURE_RETURN_IF_ERROR(MakeFolders(path.parent_path()));
  // A leader whose term is over may be at it too.
  const fs::path temporary = path.parent_path() / absl::StrCat(".", path.filename().string(), ".", getpid(), ".tmp");
  const absl::Status written = WriteFile(temporary, bytes);
  std::error_code error;
  if (written.ok()) fs::rename(temporary, path, error);
  if (!written.ok() || error) {
    std::error_code unused;
    fs::remove(temporary, unused);
    return written.ok() ? Failed("write", path, error.value()) : written;
  }
  return FlushFolder(path.parent_path());
}

absl::StatusOr<std::string> DirectorySink::Read(const std::string& name, size_t max_bytes, const std::stop_token&) {
  const fs::path path = fs::path(root_) / name;
  const Descriptor file(path, O_RDONLY);
  if (file.get() < 0) return Failed("read", path, errno);
  std::string bytes;
  char chunk[1 << 16];
  while (bytes.size() < max_bytes) {
    const ssize_t got = read(file.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", path, errno);
    if (got == 0) break;
    bytes.append(chunk, static_cast<size_t>(got));
  }
  return bytes;
}

}  // namespace tenure::background::targets
