// How events are sent, one kind of target each: the request for some events, and what its answer says of each of them.
// Layer: background/targets. Thread-safe: values only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/background/targets/access.h"
#include "server/background/targets/http_client.h"
#include "server/store/targets.h"

namespace tenure::background::targets {

struct Message {
  std::string event_id;
  std::string body;
};

// How one message fared.
struct Verdict {
  bool accepted = false;
  // The target itself is in trouble (away, overloaded, answers 5xx), not this message: the breaker counts it.
  bool trouble = false;
  std::string error;
  absl::Duration retry_after;  // What it asked for.
};

class Sender {
 public:
  virtual ~Sender() = default;
  // How many messages go into one request.
  virtual size_t batch() const = 0;
  virtual HttpRequest Request(const std::vector<Message>& messages, absl::Time now) const = 0;
  // One verdict per message.
  virtual std::vector<Verdict> Judge(const std::vector<Message>& messages,
                                     const absl::StatusOr<HttpResponse>& response) const = 0;
};

// For a notify target. The error is for its owner: a URL or settings of the daemon that do not do.
absl::StatusOr<std::unique_ptr<Sender>> MakeSender(const store::TargetSettings& settings, const Access& access);

}  // namespace tenure::background::targets
