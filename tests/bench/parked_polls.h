// Long polls of many workers, parked at a daemon, without a thread for each. Layer: tests (benchmark). One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenure::bench {

class ParkedPolls {
 public:
  // Sends so many Claims for `queue`, which must be empty, from a worker for each 50 of them, over a connection for
  // each 100. A poll that ends empty is sent again.
  static std::unique_ptr<ParkedPolls> Park(const std::string& address, const std::string& queue, int64_t polls);
  // Ends all, and waits for it.
  ~ParkedPolls();

  // OK if all are under way; else what the first one was refused with.
  absl::Status Check() const;

 private:
  struct State;
  explicit ParkedPolls(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;
};

}  // namespace tenure::bench
