// See router.h. Layer: http. Thread-safe.
#include "server/http/router.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace tenure::http {
namespace {

constexpr char kIndex[] =
    "This is Tenure's HTTP port.\n"
    "\n"
    "GET /livez            200 while the process is up\n"
    "GET /readyz           200 when this replica should get traffic, else 503 with the reasons; ?verbose shows all "
    "checks\n"
    "GET /metrics          Prometheus metrics\n"
    "POST /SERVICE/METHOD  any unary RPC, as JSON:\n"
    "  curl -H 'Content-Type: application/json' -d '{\"name\":\"mail\"}' "
    "http://HOST:PORT/tenure.v1.QueueService/GetQueue";

bool IsRead(const Request& request) { return request.method == "GET" || request.method == "HEAD"; }

// "/tenure.v1.JobService/Enqueue": two segments, of which the first is a qualified name.
bool LooksLikeRpc(std::string_view path) {
  if (path.size() < 4 || path[0] != '/') return false;
  size_t slash = path.find('/', 1);
  return slash != std::string_view::npos && slash + 1 < path.size() &&
         path.find('/', slash + 1) == std::string_view::npos &&
         path.substr(1, slash - 1).find('.') != std::string_view::npos;
}

// Whether "verbose" or "verbose=..." is among the parameters.
bool HasParameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    size_t end = std::min(query.find('&'), query.size());
    std::string_view parameter = query.substr(0, end);
    if (parameter.substr(0, parameter.find('=')) == name) return true;
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return false;
}

Response NotAllowed(std::string_view allow, std::string text) {
  Response response = TextResponse(405, std::move(text));
  response.headers.emplace_back("Allow", allow);
  return response;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return absl::ascii_tolower(c); });
  return lower;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The refusal of a body that is not JSON in UTF-8; nullopt if it may be.
std::optional<Response> RefuseContentType(const Request& request) {
  const std::string type = Lower(request.Header("content-type"));
  const size_t semicolon = std::min(type.find(';'), type.size());
  const std::string_view media = Trim(std::string_view(type).substr(0, semicolon));
  if (media == "application/json") {
    size_t charset = type.find("charset=", semicolon);
    if (charset == std::string::npos) return std::nullopt;
    std::string_view name = Trim(std::string_view(type).substr(charset + 8));
    name = Trim(name.substr(0, name.find(';')));
    if (name == "utf-8" || name == "\"utf-8\"" || name == "utf8") return std::nullopt;
    return JsonError(415, "invalid_argument", "Content-Type: the charset must be utf-8");
  }
  // What `curl -d` says when nobody tells it otherwise. A browser's form cannot get in this way: it would encode the
  // brace as %7B. (text/plain forms could send a brace, and are refused here; BrowserGuard refuses every form of a
  // foreign page anyway.)
  const size_t first = request.body.find_first_not_of(" \t\r\n");
  const bool brace = first != std::string::npos && request.body[first] == '{';
  if (brace && (media.empty() || media == "application/x-www-form-urlencoded")) return std::nullopt;
  Response response = JsonError(415, "invalid_argument", "Content-Type: must be application/json");
  response.headers.emplace_back("Accept-Post", "application/json");
  return response;
}

// Connect-Timeout-Ms: a positive number of at most 10 digits. False if it is something else.
bool ParseTimeout(std::string_view text, std::optional<absl::Duration>& timeout) {
  if (text.empty()) return true;
  int64_t milliseconds = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), milliseconds);
  if (error != std::errc() || end != text.data() + text.size() || text.size() > 10 || milliseconds <= 0) return false;
  timeout = absl::Milliseconds(milliseconds);
  return true;
}

}  // namespace

Router::Router(Metrics& metrics, Parts parts)
    : metrics_(metrics),
      json_(std::move(parts.json)),
      readiness_(std::move(parts.health), std::move(parts.checks)),
      page_(metrics, std::move(parts.refresh_metrics)),
      guard_(std::move(parts.browsers)) {}

Response Router::Probe(const Request& request, bool live) const {
  if (live) return TextResponse(200, "ok");
  Readiness::Result result = readiness_.Evaluate();
  const bool verbose = HasParameter(request.query, "verbose");
  return TextResponse(result.ready ? 200 : 503, verbose ? std::move(result.verbose) : std::move(result.summary));
}

std::function<void()> Router::Handle(Request request, Respond respond) {
  const char* route = "other";
  if (request.path == "/livez") route = "livez";
  if (request.path == "/readyz") route = "readyz";
  if (request.path == "/metrics") route = "metrics";
  const bool page = route[0] != 'o';
  const bool rpc = LooksLikeRpc(request.path);
  if (rpc && request.method == "POST") route = "rpc";

  auto answer = [this, route, respond = std::move(respond), cors = guard_.CorsHeaders(request)](Response response) {
    Metrics::Add(metrics_.http_requests, {{"route", route}, {"code", absl::StrCat(response.status)}});
    response.headers.insert(response.headers.end(), cors.begin(), cors.end());
    respond(std::move(response));
  };

  if (auto refusal = guard_.Refuse(request)) {
    answer(*std::move(refusal));
  } else if (page && !IsRead(request)) {
    answer(NotAllowed("GET, HEAD", request.path + " is read with GET"));
  } else if (request.path == "/livez" || request.path == "/readyz") {
    answer(Probe(request, request.path == "/livez"));
  } else if (request.path == "/metrics") {
    answer(page_.Render());
  } else if (rpc && request.method == "POST") {
    return HandleRpc(std::move(request), std::move(answer));
  } else if (rpc && request.method == "OPTIONS" && request.HasHeader("origin")) {
    answer(BrowserGuard::Preflight());
  } else if (rpc) {
    answer(NotAllowed("POST", absl::StrCat("RPCs are called with POST and a JSON message, for example:\n  curl -H "
                                           "'Content-Type: application/json' -d '{}' http://",
                                           std::string(request.Header("host")), request.path)));
  } else if (request.path == "/" && IsRead(request)) {
    answer(TextResponse(200, kIndex));
  } else if (IsRead(request)) {
    answer(TextResponse(404, "there is nothing at this path; GET / lists what there is"));
  } else {
    answer(JsonError(404, "unimplemented",
                     "there is no RPC at this path; RPCs are at /SERVICE/METHOD, for example "
                     "/tenure.v1.JobService/Enqueue"));
  }
  return {};
}

std::function<void()> Router::HandleRpc(Request request, Respond respond) {
  std::optional<Response> refusal = RefuseContentType(request);
  const std::string encoding = Lower(request.Header("content-encoding"));
  if (!refusal && !encoding.empty() && encoding != "identity") {
    refusal = JsonError(501, "unimplemented", "Content-Encoding: compressed requests are not supported; send it plain");
  }
  if (!refusal && request.HasHeader("connect-protocol-version") && request.Header("connect-protocol-version") != "1") {
    refusal = JsonError(400, "invalid_argument", "Connect-Protocol-Version: must be 1");
  }
  JsonCall call;
  if (!refusal && !ParseTimeout(request.Header("connect-timeout-ms"), call.timeout)) {
    refusal = JsonError(400, "invalid_argument",
                        "Connect-Timeout-Ms: must be a positive number of milliseconds of at most 10 digits");
  }
  if (refusal) {
    respond(*std::move(refusal));
    return {};
  }
  call.content_type = std::string(request.Header("content-type"));
  call.path = std::move(request.path);
  call.body = std::move(request.body);
  call.headers = std::move(request.headers);
  call.peer = std::move(request.peer);
  return json_(std::move(call), [respond = std::move(respond)](JsonAnswer answer) {
    Response response;
    response.status = answer.http_status;
    response.content_type = "application/json";
    response.body = std::move(answer.body);
    for (auto& [name, value] : answer.headers) {
      if (Lower(name) == "content-type") {
        response.content_type = std::move(value);
      } else {
        response.headers.emplace_back(std::move(name), std::move(value));
      }
    }
    respond(std::move(response));
  });
}

}  // namespace tenure::http
