// HTTP requests to targets, many at a time on one thread, by libcurl's multi interface. Layer: background/targets, the
// only place that knows libcurl. Not thread-safe, but for Wake.
//
// What a target's owner could misuse is refused here: only http and https, no redirects, no proxy from the environment,
// no credentials or cookies, and no address that is not public unless allowed. The address is looked at when the socket
// is made, after the name was resolved, so that a name cannot resolve to one address for a check and to another one for
// the connection.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tenure::background::targets {

struct HttpRequest {
  std::string method = "POST";
  std::string url;
  std::vector<std::string> headers;  // "Name: value".
  std::string body;
  absl::Duration timeout = absl::Seconds(10);  // From start to end.
  size_t max_response = 64 << 10;              // What is longer is an error.
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // Names in lower case; of those that came twice the last one.
  std::string body;
  absl::Duration took;
};

class HttpClient {
 public:
  // Runs exactly once per request, inside of Run. Errors: UNAVAILABLE (no whole answer: why), PERMISSION_DENIED /
  // TARGET_ADDRESS_REFUSED (an address that is not public), RESOURCE_EXHAUSTED (the answer is too long).
  using Done = std::function<void(absl::StatusOr<HttpResponse>)>;

  explicit HttpClient(bool allow_private);
  // Requests under way are dropped; their callbacks do not run.
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void Start(HttpRequest request, Done done);
  int running() const;
  // Moves the requests on, and waits up to `wait` for something to happen.
  void Run(absl::Duration wait);
  // Ends the current wait, or the next one. Any thread.
  void Wake();

  // One request, from start to end. CANCELLED when `stop` fires.
  absl::StatusOr<HttpResponse> Fetch(HttpRequest request, const std::stop_token& stop);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenure::background::targets
