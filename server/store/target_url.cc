// Forms of target URLs. Layer: store.
#include "server/store/target_url.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/status.h"

namespace tenure::store {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Bad(std::string_view field, std::string_view rule) { return InvalidField(field, rule); }

bool OneOf(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

// host[:port], nothing else. Brackets around IPv6.
bool IsAuthority(std::string_view text) {
  std::string_view host = text, port;
  if (!text.empty() && text.front() == '[') {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return false;
    host = text.substr(1, end - 1);
    if (host.empty() || !std::all_of(host.begin(), host.end(), [](char c) {
          return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == ':' || c == '.';
        })) {
      return false;
    }
    port = text.substr(end + 1);
    if (!port.empty() && port.front() != ':') return false;
    if (!port.empty())
      port.remove_prefix(1);
    else
      return true;
  } else if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  } else {
    port = "80";
  }
  int number = 0;
  if (!absl::SimpleAtoi(View(port), &number) || number < 1 || number > 65535) return false;
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || OneOf(c, ".-_:");
  });
}

// The authority and the rest of what follows "://".
std::pair<std::string_view, std::string_view> Split(std::string_view rest) {
  const size_t end = rest.find_first_of("/?#");
  if (end == std::string_view::npos) return {rest, {}};
  return {rest.substr(0, end), rest.substr(end)};
}

absl::Status CheckHttp(std::string_view field, std::string_view authority, std::string_view rest) {
  if (authority.find('@') != std::string_view::npos) {
    return Bad(field, "must not hold a user name or a password; use secret");
  }
  if (!IsAuthority(authority)) return Bad(field, "must name a host, and a port from 1 to 65535 if any");
  if (rest.find('#') != std::string_view::npos) return Bad(field, "must not have a fragment (#)");
  return absl::OkStatus();
}

// sqs.eu-west-1.amazonaws.com and the like.
std::string RegionOfHost(std::string_view host) {
  const std::vector<std::string> labels = absl::StrSplit(View(host), '.');
  for (size_t i = 0; i + 1 < labels.size(); ++i) {
    if ((labels[i] == "sqs" || labels[i] == "queue") && labels.size() > i + 2 && labels[i + 2] == "amazonaws")
      return labels[i + 1];
  }
  return "";
}

// Segments of a path, none of which climbs; false if one does.
bool IsPlainPath(std::string_view path) {
  for (const absl::string_view part : absl::StrSplit(View(path), '/')) {
    if (part == "." || part == "..") return false;
  }
  return std::all_of(path.begin(), path.end(), [](char c) { return c >= 0x20 && c != 0x7f; });
}

absl::StatusOr<TargetUrl> ParseS3(std::string_view rest, std::string_view region, std::string_view endpoint,
                                  std::string_view default_region) {
  TargetUrl out;
  out.scheme = TargetScheme::kS3;
  const size_t slash = rest.find('/');
  out.bucket = std::string(rest.substr(0, slash));
  if (out.bucket.size() < 3 || out.bucket.size() > 63 || !std::all_of(out.bucket.begin(), out.bucket.end(), [](char c) {
        return absl::ascii_islower(static_cast<unsigned char>(c)) ||
               absl::ascii_isdigit(static_cast<unsigned char>(c)) || OneOf(c, ".-");
      })) {
    return Bad("url", "must name a bucket of 3 to 63 lower-case letters, digits, dots and hyphens: s3://bucket/prefix");
  }
  if (slash != std::string_view::npos) out.path = std::string(rest.substr(slash + 1));
  while (absl::EndsWith(out.path, "/")) out.path.pop_back();
  if (!IsPlainPath(out.path) || out.path.find_first_of("?#") != std::string::npos) {
    return Bad("url", "must have a prefix without . and .. segments, ? and #");
  }
  out.region = std::string(region.empty() ? default_region : region);
  if (endpoint.empty()) {
    // A dot in the name would not match the certificate of the store's own domain.
    const bool dotted = out.bucket.find('.') != std::string::npos;
    out.url = dotted ? absl::StrCat("https://s3.", out.region, ".amazonaws.com/", out.bucket)
                     : absl::StrCat("https://", out.bucket, ".s3.", out.region, ".amazonaws.com");
    return out;
  }
  const bool plain = endpoint.starts_with("http://");
  if (!plain && !endpoint.starts_with("https://"))
    return Bad("endpoint", "must be https://host[:port] or http://host[:port]");
  auto [authority, path] = Split(endpoint.substr(plain ? 7 : 8));
  TENURE_RETURN_IF_ERROR(CheckHttp("endpoint", authority, path));
  if (!path.empty() && path != "/") return Bad("endpoint", "must be https://host[:port] without a path");
  out.url = absl::StrCat(plain ? "http://" : "https://", View(authority), "/", out.bucket);
  return out;
}

}  // namespace

std::string_view PurposeName(TargetPurpose purpose) {
  switch (purpose) {
    case TargetPurpose::kNotify:
      return "notify";
    case TargetPurpose::kEventLog:
      return "event-log";
    case TargetPurpose::kExport:
      return "export";
    case TargetPurpose::kInventory:
      return "inventory";
    case TargetPurpose::kRelay:
      return "relay";
  }
  return "";
}

absl::StatusOr<TargetUrl> ParseTargetUrl(TargetPurpose purpose, std::string_view url, std::string_view region,
                                         std::string_view endpoint, std::string_view default_region) {
  if (url.size() > 2048) return Bad("url", "must be at most 2048 bytes long");
  if (!std::all_of(url.begin(), url.end(), [](char c) { return c > 0x20 && c < 0x7f && c != '"' && c != '\\'; })) {
    return Bad("url", "must be printable ASCII without blanks, quotes and backslashes; write others as %XX");
  }
  for (const char c : region) {
    if (!absl::ascii_islower(static_cast<unsigned char>(c)) && !absl::ascii_isdigit(static_cast<unsigned char>(c)) &&
        c != '-') {
      return Bad("region", "may hold only lower-case letters, digits and hyphens, such as eu-west-1");
    }
  }
  if (region.size() > 32) return Bad("region", "must be at most 32 bytes long");
  const bool files =
      purpose == TargetPurpose::kEventLog || purpose == TargetPurpose::kExport || purpose == TargetPurpose::kInventory;
  if (!endpoint.empty() && !url.starts_with("s3://")) return Bad("endpoint", "goes with an s3:// URL alone");
  if (files) {
    if (url.starts_with("s3://")) return ParseS3(url.substr(5), region, endpoint, default_region);
    if (!region.empty()) return Bad("region", "goes with SQS and S3 alone");
    if (!url.starts_with("file:///"))
      return Bad("url", "must be file:///directory or s3://bucket/prefix for this purpose");
    TargetUrl out;
    out.scheme = TargetScheme::kDirectory;
    out.path = std::string(url.substr(7));
    while (out.path.size() > 1 && out.path.back() == '/') out.path.pop_back();
    if (out.path == "/" || !IsPlainPath(out.path) || out.path.find('%') != std::string::npos) {
      return Bad("url", "must name a directory by its plain path, without . and .. segments and %");
    }
    return out;
  }
  TargetUrl out;
  const bool sqs = url.starts_with("sqs+") && purpose == TargetPurpose::kNotify;
  if (sqs) url.remove_prefix(4);
  const bool plain = url.starts_with("http://");
  if (!plain && !url.starts_with("https://")) {
    return Bad("url", purpose == TargetPurpose::kNotify
                          ? "must be https://host/path, http://host/path, or sqs+https://host/account/queue"
                          : "must be https://host[:port] or http://host[:port] for this purpose");
  }
  const auto [authority, rest] = Split(url.substr(plain ? 7 : 8));
  TENURE_RETURN_IF_ERROR(CheckHttp("url", authority, rest));
  out.host = std::string(authority);
  out.url = std::string(url);
  if (!sqs) {
    if (!region.empty()) return Bad("region", "goes with SQS and S3 alone");
    if (purpose == TargetPurpose::kRelay) {
      if (rest.size() > 1) return Bad("url", "must be https://host[:port] without a path: the peer's HTTP port");
      while (out.url.back() == '/') out.url.pop_back();
    }
    return out;
  }
  out.scheme = TargetScheme::kSqs;
  const std::vector<std::string> parts = absl::StrSplit(View(rest), '/');
  if (parts.size() != 3 || parts[1].empty() || parts[2].empty() || rest.find('?') != std::string_view::npos) {
    return Bad(
        "url",
        "must end in the account and the name of the queue: sqs+https://sqs.eu-west-1.amazonaws.com/123456789012/name");
  }
  out.path = std::string(rest);
  out.region = std::string(region.empty() ? std::string_view() : region);
  if (out.region.empty()) out.region = RegionOfHost(authority);
  if (out.region.empty()) out.region = std::string(default_region);
  return out;
}

}  // namespace tenure::store
