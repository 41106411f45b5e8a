// Long polls of many workers, parked at a daemon: without a thread for each, and in a process of their own, so that
// what they cost on the client's side is not taken for the daemon's. Layer: tests (benchmark). One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/demo/child.h"

namespace tenure::bench {

// What the process does: sends so many Claims for `queue`, which must be empty, from a worker for each 50 of them, over
// a connection for each 100, and sends each again that ends empty. Says so on stdout, and goes on until SIGTERM. The
// exit status: 0 if all were under way then, else 1, with the reason on stderr.
int RunParkedPolls(const std::string& address, const std::string& queue, int64_t polls);

class ParkedPolls {
 public:
  // Starts this program as that process, with its log in `directory`; returns once all are sent.
  static absl::StatusOr<std::unique_ptr<ParkedPolls>> Park(const std::string& address, const std::string& queue,
                                                           int64_t polls, const std::string& directory);
  // Ends all. An error if they were not all under way.
  absl::Status Finish();

 private:
  ParkedPolls(std::unique_ptr<demo::Child> child, std::string log) : child_(std::move(child)), log_(std::move(log)) {}

  const std::unique_ptr<demo::Child> child_;
  const std::string log_;
};

}  // namespace tenure::bench
