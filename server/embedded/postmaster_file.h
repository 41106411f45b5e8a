// postmaster.pid, the file by which PostgreSQL keeps a second server off a data directory: reading it, telling whether
// the process it names still serves that directory, and clearing what a dead server left. Every function but
// ReadPostmasterFile requires that the caller holds the lock of the DataDirectory. Layer: embedded. Functions only; not
// to be called concurrently for one cluster.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/embedded/process.h"

namespace tenure::embedded {

struct PostmasterFile {
  pid_t pid = 0;
  bool single_user = false;  // postgres --single, which takes no connections.
  int port = 0;
  std::string socket_dir;  // Empty until the server listens.
  std::string status;      // starting, ready, stopping, standby; empty while the server starts.
};

// Nothing if there is no such file, or none that names a process.
std::optional<PostmasterFile> ReadPostmasterFile(const std::string& cluster);

// The live server of this very directory that the file names; null if there is none. A process that only got the pid is
// told apart by its program and working directory. A server that has just been started gets half a second to write the
// file.
std::unique_ptr<Process> FindPostmaster(const std::string& cluster);

// Makes sure that a new server can start: no process of an earlier one is left (backends that outlived their postmaster
// are ended), and the file does not name somebody else's process. Call it only when FindPostmaster found nothing.
// FAILED_PRECONDITION if a single-user server is at work, or a process of the earlier server does not end.
absl::Status ClearForStart(const std::string& cluster, uid_t owner);

}  // namespace tenure::embedded
