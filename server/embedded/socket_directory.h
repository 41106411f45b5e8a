// The private directory of the unix socket. It has a short path of its own, because a socket's path may have 107 bytes
// at most and a data directory is often longer; since connections are trusted, its owner and mode (0700) are what keeps
// others out. Layer: embedded. Thread-safe: functions only.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/embedded/data_directory.h"

namespace tenure::embedded {

// Part of the socket's file name; nothing listens on a TCP port.
inline constexpr int kSocketPort = 5432;

// Makes (or takes over) `<parent>/tenure-<hash of the data directory>` for the owner of the cluster, and empties it:
// what an earlier server left there could name a live process and stop the new one. No server of this data directory
// may be running. If `parent` is empty: under /tmp, or under $XDG_RUNTIME_DIR if that one is not usable.
// INVALID_ARGUMENT if the path is too long; PERMISSION_DENIED if the directory is not the owner's alone.
absl::StatusOr<std::string> PrepareSocketDirectory(const DataDirectory& data, const std::string& parent);

// Removes a directory that PrepareSocketDirectory made, if a server left nothing in it.
void RemoveSocketDirectory(const std::string& directory);

}  // namespace tenure::embedded
