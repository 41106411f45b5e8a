// Every unary RPC as a JSON POST, in Connect's unary form: path "/tenure.v1.JobService/Enqueue", the request in the
// proto's JSON mapping, the same handler as gRPC's, the answer (or a Connect error object) as JSON. Knows nothing of an
// HTTP library: http/ owns sockets, content types and header parsing, app/ joins the two. Layer: rpc. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace tenure::rpc {

class MethodTable;

struct JsonRequest {
  std::string path;                       // "/tenure.v1.WorkerService/Claim"
  std::string body;                       // The request as JSON. Empty is the same as "{}".
  std::optional<absl::Duration> timeout;  // From the header Connect-Timeout-Ms; absent: none.
  std::string peer;                       // For logs.
};

struct JsonAnswer {
  int http_status = 200;
  std::string body;  // application/json in every case.
  std::vector<std::pair<std::string, std::string>>
      headers;  // Further headers, for example Retry-After (whole seconds).
};

// A call under way. Hold it until the answer has been written to the socket, then drop it. Thread-safe.
class JsonCall {
 public:
  // Dropping the handle says that the answer was delivered, unless Cancel came first.
  virtual ~JsonCall() = default;
  // The caller has gone: a parked poll leaves at once, and leases that an answer carries (even one already handed out,
  // as long as the handle is held) are given back. The answer still comes, exactly once, and may be thrown away.
  // Idempotent.
  virtual void Cancel() = 0;
};

class JsonDispatcher {
 public:
  // `methods` outlives the dispatcher.
  explicit JsonDispatcher(const MethodTable& methods) : methods_(methods) {}

  // True if `path` is an RPC.
  bool Serves(std::string_view path) const;

  // Starts the call and returns without waiting. `done` runs exactly once, possibly before Call returns, on any thread;
  // it must not block. An unknown path answers 404, JSON that does not parse (or names an unknown field) 400.
  std::shared_ptr<JsonCall> Call(JsonRequest request, std::function<void(JsonAnswer)> done) const;

 private:
  const MethodTable& methods_;
};

}  // namespace tenure::rpc
