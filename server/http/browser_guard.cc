// See browser_guard.h. Layer: http. Thread-safe: immutable.
#include "server/http/browser_guard.h"

#include <algorithm>
#include <string_view>

#include "server/http/address.h"

namespace tenure::http {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  return lower;
}

// "localhost:8471" of "http://localhost:8471"; empty if it is no origin of the web ("null" is what sandboxed pages
// send).
std::string AuthorityOf(std::string_view origin) {
  size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? "" : Lower(origin.substr(scheme + 3));
}

Response Forbidden(std::string_view message) { return JsonError(403, "permission_denied", message); }

}  // namespace

BrowserGuard::BrowserGuard(Options options) : options_(std::move(options)) {
  for (std::string& host : options_.allowed_hosts) host = HostOf(host);
  for (std::string& origin : options_.allowed_origins) origin = Lower(origin);
}

bool BrowserGuard::TrustedHost(const std::string& host, bool loopback_listener) const {
  if (std::find(options_.allowed_hosts.begin(), options_.allowed_hosts.end(), host) != options_.allowed_hosts.end()) {
    return true;
  }
  // An address cannot be rebound, only a name can; but a loopback port is never rightly reached under a foreign
  // address.
  return IsLoopbackHost(host) || (!loopback_listener && IsIpAddress(host));
}

bool BrowserGuard::OriginAllowed(std::string_view origin) const {
  return std::find(options_.allowed_origins.begin(), options_.allowed_origins.end(), Lower(origin)) !=
         options_.allowed_origins.end();
}

std::optional<Response> BrowserGuard::Refuse(const Request& request) const {
  const std::string_view host_header = request.Header("host");
  const std::string host = HostOf(host_header);
  // A request of HTTP/1.0 may lack Host; no browser sends such a one. The server has refused HTTP/1.1 without it.
  if (request.HasHeader("host")) {
    if (host.empty()) return JsonError(400, "invalid_argument", "Host: must be a name or an address, and a port");
    if (request.loopback_listener && !TrustedHost(host, true)) {
      return Forbidden(
          std::string("Host: \"") + host +
          "\" is not a name of this loopback port (DNS rebinding?); use localhost or 127.0.0.1, or add the "
          "name to the allowed HTTP hosts");
    }
  }

  // Reading is harmless: without CORS headers the browser keeps the answer from the page.
  if (request.method == "GET" || request.method == "HEAD") return std::nullopt;

  if (request.HasHeader("origin")) {
    const std::string_view origin = request.Header("origin");
    if (OriginAllowed(origin)) return std::nullopt;
    const std::string authority = AuthorityOf(origin);
    const bool own =
        !authority.empty() && authority == Lower(host_header) && TrustedHost(host, request.loopback_listener);
    if (own) return std::nullopt;
    return Forbidden("Origin: requests of web pages are refused unless their origin is among the allowed HTTP origins");
  }
  const std::string site = Lower(request.Header("sec-fetch-site"));
  if (!site.empty() && site != "same-origin" && site != "none") {
    return Forbidden("Sec-Fetch-Site: requests of other web sites are refused");
  }
  return std::nullopt;
}

HeaderList BrowserGuard::CorsHeaders(const Request& request) const {
  const std::string_view origin = request.Header("origin");
  if (origin.empty() || !OriginAllowed(origin)) return {};
  return {{"Access-Control-Allow-Origin", std::string(origin)}, {"Vary", "Origin"}};
}

Response BrowserGuard::Preflight() {
  Response response;
  response.status = 204;
  response.headers = {
      {"Access-Control-Allow-Methods", "POST"},
      {"Access-Control-Allow-Headers", "authorization, content-type, connect-protocol-version, connect-timeout-ms"},
      {"Access-Control-Max-Age", "600"}};
  return response;
}

}  // namespace tenure::http
