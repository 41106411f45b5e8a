// HOST:PORT texts, as in --http-listen and in Host and Origin headers. Layer: http. Values only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tenure::http {

struct Address {
  std::string host;  // A name, an IPv4 address or an IPv6 address without brackets; empty: all interfaces.
  uint16_t port = 0;
};

// "127.0.0.1:8471", "[::1]:0", "localhost:8471", ":8471". INVALID_ARGUMENT that names `field` and the rule otherwise.
absl::StatusOr<Address> ParseListenAddress(std::string_view text, std::string_view field);
// With brackets around an IPv6 address.
std::string FormatAddress(const Address& address);

// The host of a Host header or of an Origin's authority: in lower case, without port, brackets and trailing dot. Empty
// if `text` is malformed.
std::string HostOf(std::string_view text);

// localhost, 127.0.0.0/8 and ::1, as HostOf gives them.
bool IsLoopbackHost(std::string_view host);
// An IPv4 or IPv6 address rather than a name.
bool IsIpAddress(const std::string& host);

}  // namespace tenure::http
