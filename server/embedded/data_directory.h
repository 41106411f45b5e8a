// The directory given to the daemon for its private PostgreSQL: whose it is, who uses it now, and how a cluster gets
// into it.
//
//   <root>/tenure.lock      flock'ed for the life of the daemon; holds its pid
//   <root>/postgres/        the cluster (what PostgreSQL calls PGDATA)
//   <root>/initdb-XXXXXX/   a cluster in the making; one that was cut off is removed by the next Open
//   <root>/postgresql.log   what PostgreSQL and initdb write; .1 is its predecessor
//
// The cluster is a subdirectory because the root may be a mount point, which nothing can be renamed onto.
// Layer: embedded. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/embedded/installation.h"
#include "server/embedded/process.h"

namespace tenure::embedded {

class DataDirectory {
 public:
  // Makes the directory if it is missing, locks it until the object is destroyed, and removes what a killed initdb
  // left. As root it also settles whom PostgreSQL runs as: the owner of the cluster, else the user "postgres", to whom
  // a cluster that root owns is handed over. FAILED_PRECONDITION if another daemon holds it (names its pid), if it is a
  // PostgreSQL data directory itself, or as root without a user "postgres"; PERMISSION_DENIED if it belongs to someone
  // else.
  static absl::StatusOr<DataDirectory> Open(const std::string& path);

  const std::string& root() const { return root_; }  // Absolute, without symbolic links.
  std::string cluster() const { return root_ + "/postgres"; }
  std::string log_path() const { return root_ + "/postgresql.log"; }
  // Unset: as the caller's own user.
  const std::optional<UserId>& run_as() const { return run_as_; }
  // The uid that PostgreSQL's processes and files have.
  uid_t owner() const;

  // The PG_VERSION of the cluster; nothing if there is no cluster yet. FAILED_PRECONDITION if it is not a cluster.
  absl::StatusOr<std::optional<int>> ClusterMajor() const;

  // Makes the cluster, atomically: UTF-8, locale C.UTF-8 (C where the system has no such locale), data checksums,
  // superuser "tenure", local connections trusted (the socket's directory is private), none over TCP. `durable`: fsync
  // the result. PERMISSION_DENIED, saying what to do, if the user cannot get at the directory.
  absl::Status CreateCluster(const Installation& installation, bool durable, absl::Duration timeout) const;

  // Opens the log for appending, after moving one of more than 16 MiB out of the way.
  absl::StatusOr<UniqueFd> OpenLog() const;
  // Its last lines, at most 4 KiB, of what was written after `offset` (bytes), introduced by its path; for error
  // messages.
  std::string LogTail(off_t offset) const;

  // A PERMISSION_DENIED that names the directory above (or equal to) `path` which run_as() may not enter, and the
  // remedy.
  absl::Status ExplainNoEntry(const std::string& path) const;

 private:
  DataDirectory() = default;
  absl::Status Lock();
  absl::Status SettleOwner();
  absl::Status RemoveUnfinished() const;
  absl::Status RunInitdb(const Installation& installation, const std::string& directory, bool durable,
                         absl::Duration timeout) const;

  std::string root_;
  UniqueFd lock_;
  std::optional<UserId> run_as_;
};

}  // namespace tenure::embedded
