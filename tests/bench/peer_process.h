// Peers: other job queues on PostgreSQL, each run by an executable tests/bench/peers/NAME/run (its README.md has the
// contract) as a process of its own on an empty database. Layer: tests (benchmark). One thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scenario.h"

namespace tenure::bench {

struct PeerMode {
  std::string scenario, mode;
};

class Peer {
 public:
  // Those in `folder`, by name.
  static std::vector<Peer> In(const std::string& folder);

  const std::string& name() const { return name_; }
  // OK if it can run; else why not, in one line.
  absl::Status Check() const;
  // What it needs goes to build/peers below the checkout. Takes a while; its output goes to stderr.
  absl::Status Install() const;
  absl::StatusOr<std::vector<PeerMode>> Modes() const;

  // The contestant "NAME MODE" of a scenario.
  Contestant In(const std::string& scenario, const std::string& mode) const;

 private:
  Peer(std::string name, std::string program) : name_(std::move(name)), program_(std::move(program)) {}

  std::string name_;
  std::string program_;
};

// Kills the process group of the peer that runs now, if any; for a signal handler thread.
void KillRunningPeer();

}  // namespace tenure::bench
