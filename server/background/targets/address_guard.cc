// Address ranges of RFC 6890 and its successors. Layer: background/targets.
#include "server/background/targets/address_guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace tenure::background::targets {
namespace {

struct Range {
  uint32_t network;
  int bits;
};

constexpr uint32_t Net(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return a << 24 | b << 16 | c << 8 | d; }

constexpr Range kNotPublic[] = {
    {Net(0, 0, 0, 0), 8},      {Net(10, 0, 0, 0), 8},     {Net(100, 64, 0, 0), 10}, {Net(127, 0, 0, 0), 8},
    {Net(169, 254, 0, 0), 16}, {Net(172, 16, 0, 0), 12},  {Net(192, 0, 0, 0), 24},  {Net(192, 0, 2, 0), 24},
    {Net(192, 88, 99, 0), 24}, {Net(192, 168, 0, 0), 16}, {Net(198, 18, 0, 0), 15}, {Net(198, 51, 100, 0), 24},
    {Net(203, 0, 113, 0), 24}, {Net(224, 0, 0, 0), 4},    {Net(240, 0, 0, 0), 4},
};

bool IsPublic4(uint32_t address) {
  for (const Range& range : kNotPublic) {
    const uint32_t mask = ~uint32_t{0} << (32 - range.bits);
    if ((address & mask) == range.network) return false;
  }
  return true;
}

uint32_t Embedded(const uint8_t* bytes) { return Net(bytes[0], bytes[1], bytes[2], bytes[3]); }

bool IsPublic6(const uint8_t* b) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  static constexpr uint8_t kNat64[12] = {0, 0x64, 0xff, 0x9b};
  if (std::memcmp(b, kMapped, 12) == 0 || std::memcmp(b, kNat64, 12) == 0) return IsPublic4(Embedded(b + 12));
  if (b[0] == 0x20 && b[1] == 0x02) return IsPublic4(Embedded(b + 2));  // 6to4.
  // Global unicast is 2000::/3; of it, Teredo, documentation and the like are not.
  if ((b[0] & 0xe0) != 0x20) return false;
  if (b[0] == 0x20 && b[1] == 0x01 && b[2] < 0x02) return false;                   // 2001::/23
  if (b[0] == 0x20 && b[1] == 0x01 && b[2] == 0x0d && b[3] == 0xb8) return false;  // 2001:db8::/32
  if (b[0] == 0x3f && b[1] == 0xff && (b[2] & 0xf0) == 0) return false;            // 3fff::/20
  return true;
}

}  // namespace

bool IsPublic(const sockaddr& address) {
  // Copied: a sockaddr is aligned for less than what it stands for.
  if (address.sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address, sizeof in);
    return IsPublic4(ntohl(in.sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, &address, sizeof in);
    return IsPublic6(in.sin6_addr.s6_addr);
  }
  return false;
}

std::string ToText(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address, sizeof in);
    inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size());
  } else if (address.sa_family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, &address, sizeof in);
    inet_ntop(AF_INET6, &in.sin6_addr, text.data(), text.size());
  }
  return text.data();
}

}  // namespace tenure::background::targets
