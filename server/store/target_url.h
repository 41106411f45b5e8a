// Where a target is: the purposes, and the forms of URLs that each accepts. Layer: store. Values only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tenure::store {

// Which background worker serves a target. Stored; never renumber.
enum class TargetPurpose : int16_t { kNotify = 1, kEventLog = 2, kExport = 3, kInventory = 4, kRelay = 5 };
// "notify", "event-log", ...
std::string_view PurposeName(TargetPurpose purpose);

enum class TargetScheme { kHttp, kSqs, kDirectory, kS3 };

// A URL, taken apart.
struct TargetUrl {
  TargetScheme scheme = TargetScheme::kHttp;
  std::string url;     // kHttp: as given. kSqs: that of the queue, https. kS3: of the store, without a path.
  std::string host;    // kHttp, kSqs.
  std::string path;    // kDirectory: absolute. kS3: the prefix, without slashes at its ends. kSqs: of the queue.
  std::string bucket;  // kS3.
  std::string region;  // kSqs, kS3.
};

// The forms:
//   https://host[:port]/path       (and http://)              notify, relay
//   sqs+https://host/account/queue (and sqs+http://)          notify
//   file:///directory                                         event-log, export, inventory
//   s3://bucket[/prefix]                                      event-log, export, inventory
// `region` empty: from an Amazon host name, else `default_region`. `endpoint` (kS3): https://host[:port] of another
// store than Amazon's. The error names the rule ("must be ..."); user names and passwords in URLs are refused.
absl::StatusOr<TargetUrl> ParseTargetUrl(TargetPurpose purpose, std::string_view url, std::string_view region,
                                         std::string_view endpoint, std::string_view default_region = "us-east-1");

}  // namespace tenure::store
