// What the HTTP port asks of whoever answers JSON POSTs: one call in, one answer out, a way to give up. rpc/ provides
// the function and app/ hands it to HttpServer, so that neither layer includes the other. Layer: http. Values only.
//
// The wire form is Connect's unary one: POST /tenure.v1.JobService/Enqueue with a JSON message; an error is a JSON
// object with code, message and details under the HTTP status that belongs to the code.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace tenure::http {

struct JsonCall {
  std::string path;  // Without the query: /tenure.v1.JobService/Enqueue. Not checked against the known methods.
  std::string body;  // At most the server's limit; not checked to be JSON or UTF-8. Empty is left to the handler.
  std::string content_type;               // As sent; the server has already refused what is not JSON.
  std::optional<absl::Duration> timeout;  // Connect-Timeout-Ms: how long the caller waits, counted from now.
  std::vector<std::pair<std::string, std::string>> headers;  // All of them, names in lower case.
  std::string peer;                                          // The caller's address and port, for logs.
};

struct JsonAnswer {
  int http_status = 200;
  std::string body;
  // Beyond Content-Type (application/json unless named here), Content-Length and the connection's own, which the server
  // adds.
  std::vector<std::pair<std::string, std::string>> headers;
};

// Begins a call and returns at once (never blocks: it runs on the port's few threads). `done` must be called exactly
// once, on any thread, also from within the handler and also after a cancel.
//
// Returns what to call when the answer will not reach its caller (may be empty): the caller has gone while the call is
// under way, or the answer could not be written. The server calls it at most once, perhaps at the same instant as
// `done` runs, and `done` may be called from inside it. Once the answer has been written it destroys it uncalled: that
// says "delivered".
using JsonDone = std::function<void(JsonAnswer)>;
using JsonCancel = std::function<void()>;
using JsonHandler = std::function<JsonCancel(JsonCall call, JsonDone done)>;

}  // namespace tenure::http
