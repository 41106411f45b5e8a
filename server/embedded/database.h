// The first connections to a server that has just started: the database in it, and how clients name it. Layer:
// embedded. Thread-safe: functions only.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace tenure::embedded {

inline constexpr char kUser[] = "tenure";
inline constexpr char kDatabase[] = "tenure";

// A URI over the unix socket, for libpq and for other drivers:
// postgresql://tenure@/<database>?host=<directory>&port=<port>.
std::string SocketUrl(const std::string& socket_dir, int port, const std::string& database);

// Creates the database "tenure" unless it is there. Idempotent; the caller holds the lock of the data directory.
// UNAVAILABLE if the server cannot be reached.
absl::Status EnsureDatabase(const std::string& socket_dir, int port);

}  // namespace tenure::embedded
