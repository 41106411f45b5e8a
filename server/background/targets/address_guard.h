// Which addresses the daemon may be sent to by the owner of a target. Layer: background/targets. Thread-safe: values.
#pragma once

#include <sys/socket.h>

#include <string>

namespace tenure::background::targets {

// False for what is not reached through the public internet: loopback, private, link-local (the metadata services of
// clouds), unique-local, multicast, unspecified, carrier-grade NAT, benchmarking and reserved ranges, also inside of
// IPv4-mapped, NAT64 and 6to4 addresses.
bool IsPublic(const sockaddr& address);

// "10.0.0.1", "fe80::1".
std::string ToText(const sockaddr& address);

}  // namespace tenure::background::targets
