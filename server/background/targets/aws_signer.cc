// Signature Version 4. Layer: background/targets.
#include "server/background/targets/aws_signer.h"

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/background/targets/digest.h"

namespace tenure::background::targets {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

struct Parts {
  std::string host, path = std::string(1, '/'), query;
};

Parts Split(const std::string& url) {
  Parts parts;
  const size_t begin = url.find("://") + 3;
  const size_t path = url.find_first_of("/?", begin);
  parts.host = url.substr(begin, path - begin);
  if (path == std::string::npos) return parts;
  const size_t query = url.find('?', path);
  if (url[path] == '/') parts.path = url.substr(path, query == std::string::npos ? query : query - path);
  if (query != std::string::npos) parts.query = url.substr(query + 1);
  return parts;
}

}  // namespace

std::string EncodePath(std::string_view path) {
  std::string out;
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '-' || c == '_' || c == '.' ||
        c == '~') {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return out;
}

void SignAws(const AwsCredentials& credentials, std::string_view service, std::string_view region, absl::Time now,
             HttpRequest& request) {
  const Parts parts = Split(request.url);
  const std::string stamp = absl::FormatTime("%Y%m%dT%H%M%SZ", now, absl::UTCTimeZone());
  const std::string day = stamp.substr(0, 8);
  const std::string body_hash = Hex(Sha256(request.body));
  request.headers.push_back(absl::StrCat("x-amz-date: ", stamp));
  request.headers.push_back(absl::StrCat("x-amz-content-sha256: ", body_hash));
  if (!credentials.session_token.empty()) {
    request.headers.push_back(absl::StrCat("x-amz-security-token: ", credentials.session_token));
  }
  std::map<std::string, std::string> signed_headers = {{"host", parts.host}};
  for (const std::string& header : request.headers) {
    const std::pair<absl::string_view, absl::string_view> halves = absl::StrSplit(header, absl::MaxSplits(':', 1));
    const std::string name = absl::AsciiStrToLower(halves.first);
    if (absl::StartsWith(name, "x-amz-") || name == "content-type") {
      signed_headers[name] = std::string(absl::StripAsciiWhitespace(halves.second));
    }
  }
  std::string canonical = absl::StrCat(request.method, "\n", parts.path, "\n", parts.query, "\n");
  for (const auto& [name, value] : signed_headers) absl::StrAppend(&canonical, name, ":", value, "\n");
  const std::string names =
      absl::StrJoin(signed_headers, ";", [](std::string* out, const auto& header) { out->append(header.first); });
  absl::StrAppend(&canonical, "\n", names, "\n", body_hash);

  const std::string scope = absl::StrCat(day, "/", View(region), "/", View(service), "/aws4_request");
  const std::string to_sign = absl::StrCat("AWS4-HMAC-SHA256\n", stamp, "\n", scope, "\n", Hex(Sha256(canonical)));
  std::string key = HmacSha256(absl::StrCat("AWS4", credentials.secret_access_key), day);
  for (const std::string_view part : {region, service, std::string_view("aws4_request")}) key = HmacSha256(key, part);
  request.headers.push_back(absl::StrCat("Authorization: AWS4-HMAC-SHA256 Credential=", credentials.access_key_id, "/",
                                         scope, ", SignedHeaders=", names,
                                         ", Signature=", Hex(HmacSha256(key, to_sign))));
}

}  // namespace tenure::background::targets
