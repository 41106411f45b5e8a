// See address.h. Layer: http. Values only.
#include "server/http/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "server/base/status.h"

namespace tenure::http {
namespace {

constexpr std::string_view kRule =
    "must be HOST:PORT, for example 127.0.0.1:8471, [::1]:8471 or :8471 for all interfaces";

bool ParsePort(std::string_view text, uint16_t& port) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

absl::StatusOr<Address> ParseListenAddress(std::string_view text, std::string_view field) {
  size_t colon = text.rfind(':');
  Address address;
  if (colon == std::string_view::npos || !ParsePort(text.substr(colon + 1), address.port)) {
    return InvalidField(field, kRule);
  }
  std::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    address.host = std::string(host.substr(1, host.size() - 2));
    in6_addr ignored;
    if (inet_pton(AF_INET6, address.host.c_str(), &ignored) != 1) return InvalidField(field, kRule);
  } else if (host.find_first_of(":[] \t/") != std::string_view::npos) {
    return InvalidField(field, kRule);  // An IPv6 address without brackets: where its port begins would be a guess.
  } else {
    address.host = std::string(host);
  }
  return address;
}

std::string FormatAddress(const Address& address) {
  std::string text =
      address.host.find(':') == std::string::npos ? address.host : std::string("[").append(address.host).append("]");
  return text.append(":").append(std::to_string(address.port));
}

std::string HostOf(std::string_view text) {
  std::string_view host = text;
  std::string_view rest;
  if (!text.empty() && text.front() == '[') {
    size_t end = text.find(']');
    if (end == std::string_view::npos) return "";
    host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
  } else if (size_t colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    rest = text.substr(colon);
  }
  uint16_t port = 0;
  if (!rest.empty() && (rest.front() != ':' || !ParsePort(rest.substr(1), port))) return "";
  if (!host.empty() && host.back() == '.') host.remove_suffix(1);
  std::string lower(host);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  return lower;
}

bool IsLoopbackHost(std::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  in_addr v4;
  return inet_pton(AF_INET, std::string(host).c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127;
}

bool IsIpAddress(const std::string& host) {
  in_addr v4;
  in6_addr v6;
  return inet_pton(AF_INET, host.c_str(), &v4) == 1 || inet_pton(AF_INET6, host.c_str(), &v6) == 1;
}

}  // namespace tenure::http
