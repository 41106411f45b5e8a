// See message.h. Layer: http. Values only.
#include "server/http/message.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/logging.h"

namespace tenure::http {

std::string_view Request::Header(std::string_view name) const {
  auto found = std::find_if(headers.begin(), headers.end(), [&](const auto& header) { return header.first == name; });
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

bool Request::HasHeader(std::string_view name) const {
  return std::any_of(headers.begin(), headers.end(), [&](const auto& header) { return header.first == name; });
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

std::string SerializeHead(const Response& response, std::string_view connection) {
  std::string head = absl::StrCat("HTTP/1.1 ", response.status, " ");
  head.append(ReasonPhrase(response.status));
  absl::StrAppend(&head, "\r\nDate: ", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()),
                  "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
  if (response.status != 204) {
    absl::StrAppend(&head, "Content-Type: ", response.content_type, "\r\nContent-Length: ", response.body.size(),
                    "\r\n");
  }
  for (const auto& [name, value] : response.headers) {
    // A value that came from elsewhere must not end the line.
    if (name.find_first_of("\r\n:") != std::string::npos || value.find_first_of("\r\n") != std::string::npos) {
      LogError("response header dropped: it contains a line break", {{"name", name}});
      continue;
    }
    absl::StrAppend(&head, name, ": ", value, "\r\n");
  }
  if (!connection.empty()) head.append("Connection: ").append(connection).append("\r\n");
  head.append("\r\n");
  return head;
}

Response TextResponse(int status, std::string text) {
  Response response;
  response.status = status;
  response.body = std::move(text);
  response.body.push_back('\n');
  return response;
}

Response JsonError(int status, std::string_view code, std::string_view message) {
  Response response;
  response.status = status;
  response.content_type = "application/json";
  response.body = "{\"code\":\"";
  response.body.append(code).append("\",\"message\":\"");
  for (char c : message) {
    // Messages may repeat what the caller sent (a path, a header): anything but printable ASCII would have to be
    // checked to be UTF-8.
    if (c == '"' || c == '\\') {
      response.body.push_back('\\');
      response.body.push_back(c);
    } else {
      response.body.push_back(c >= 0x20 && c < 0x7f ? c : '?');
    }
  }
  response.body.append("\"}");
  return response;
}

}  // namespace tenure::http
