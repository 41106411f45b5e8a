// An HTTP request and its response as plain values, so that only server.cc knows the library that speaks the protocol.
// Layer: http. Values only.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenure::http {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  // GET, POST, ...
  std::string path;    // Without the query.
  std::string query;   // Without the '?'.
  HeaderList headers;  // Names in lower case.
  std::string body;
  std::string peer;                // Address and port of the caller.
  bool loopback_listener = false;  // The port listens on a loopback address only.

  // The first header of that name (lower case), or empty.
  std::string_view Header(std::string_view name) const;
  bool HasHeader(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  HeaderList headers;  // Beyond Content-Type, Content-Length, Connection and Date.
};

// Answers a request. Must be called exactly once, on any thread.
using Respond = std::function<void(Response)>;
// Begins a request and returns at once; what it returns (may be empty) is called at most once, when the caller has gone
// before it got the answer, and destroyed uncalled when the answer has been written. The same rules as JsonHandler's.
using RequestHandler = std::function<std::function<void()>(Request, Respond)>;

// "Not Found" for 404; "Unknown" for a status that the daemon does not use.
std::string_view ReasonPhrase(int status);

// The status line and the header of `response`, with Date, and with `connection` as its Connection header unless that
// is empty.
std::string SerializeHead(const Response& response, std::string_view connection);

// A plain text answer; a newline is added to `text`.
Response TextResponse(int status, std::string text);
// Connect's error form: {"code":"invalid_argument","message":"..."}.
Response JsonError(int status, std::string_view code, std::string_view message);

}  // namespace tenure::http
