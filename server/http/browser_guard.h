// Keeps web pages from using a visitor's browser against the daemon. The port may be unauthenticated on a developer's
// loopback, and whatever page that developer visits can make the browser send requests there. Layer: http. Thread-safe:
// immutable.
//
// Two attacks, two checks:
// - Cross-site requests: a page of another origin posts to http://127.0.0.1:8471/tenure.v1.JobService/Enqueue. Browsers
// say so in
//   Origin (every POST) and Sec-Fetch-Site; programs send neither. Refused unless the origin is the port's own or
//   allowed.
// - DNS rebinding: the page's own name is made to resolve to 127.0.0.1, so that its requests are of the same origin.
// The Host
//   header then still has the page's name: a port on loopback answers only to loopback's names and to the configured
//   ones.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/http/message.h"

namespace tenure::http {

class BrowserGuard {
 public:
  struct Options {
    std::vector<std::string> allowed_hosts;    // Further names in Host, without port: "tenure.internal".
    std::vector<std::string> allowed_origins;  // Pages that may call the RPCs: "https://console.example.com".
  };

  explicit BrowserGuard(Options options);

  // The refusal (403, or 400 for a Host header that cannot be read), or nullopt if the request may go on.
  std::optional<Response> Refuse(const Request& request) const;

  // For a request of an allowed foreign origin: the headers without which the browser hides the answer from its page.
  HeaderList CorsHeaders(const Request& request) const;
  // The answer to the question (OPTIONS) that a browser asks before a JSON POST of an allowed origin.
  static Response Preflight();

 private:
  bool TrustedHost(const std::string& host, bool loopback_listener) const;
  bool OriginAllowed(std::string_view origin) const;

  Options options_;
};

}  // namespace tenure::http
