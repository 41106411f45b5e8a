// Signature Version 4 of requests to Amazon's services and those that speak like them. Layer: background/targets.
// Thread-safe: values only.
//
// Our own rather than libcurl's: that of 7.88 neither encodes paths as S3 wants it nor signs the hash of the body.
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/background/targets/http_client.h"

namespace tenure::background::targets {

struct AwsCredentials {
  std::string access_key_id;
  std::string secret_access_key;
  std::string session_token;
  std::string region;  // Where a target names none; empty: us-east-1.

  bool given() const { return !access_key_id.empty() && !secret_access_key.empty(); }
};

// Adds the headers Authorization, x-amz-date, x-amz-content-sha256 and, if there is one, x-amz-security-token to
// `request`, over its method, host, path, query, body and the x-amz-* and content-type headers that it has already. Its
// path must be encoded as it travels, each byte once; its query must have its parameters in order.
void SignAws(const AwsCredentials& credentials, std::string_view service, std::string_view region, absl::Time now,
             HttpRequest& request);

// A path as S3 signs and sees it: all but unreserved characters and / as %XX.
std::string EncodePath(std::string_view path);

}  // namespace tenure::background::targets
